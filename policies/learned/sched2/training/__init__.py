"""Training of SCHED2's agent: recipe, search for a rule, Q-learning and demonstrations.
Imports `errors`, `learned/algorithms`, `learned/sched2/network`, `learned/sched2/state` and `learned/training`.
"""
