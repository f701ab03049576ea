"""The experiment of `headway-sim reproduce sched2`: contenders, claims, stored runs, bounds, and how the setting was chosen.
Imports `agents`, `cluster`, `engine`, `errors`, `papers/programs`, `papers/sched2/baselines`, `reproducing`, `results`, `runs`,
`slowdown` and `traces`; of other packages `policies`.
"""
