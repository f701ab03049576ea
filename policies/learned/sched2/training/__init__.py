"""Training of SCHED2's agent: recipe, search for a rule, Q-learning and demonstrations. Imports `state` and the network."""
