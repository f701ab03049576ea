"""How SCHED2's agent is trained: recipe, search for a rule, Q-learning and demonstrations. Imports `state` and the network."""
