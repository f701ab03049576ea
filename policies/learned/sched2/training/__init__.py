"""Training of SCHED2's agents: recipes, Q-learning, demonstrations, and the search for a rule.
Imports `errors`, `learned/algorithms`, `learned/sched2/encoder`, `learned/sched2/networks`, `learned/sched2/state` and
`learned/training`.
"""
