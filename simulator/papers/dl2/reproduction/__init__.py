"""The experiment of `headway-sim reproduce dl2`: settings, contenders, claims, and the runs that are stored with it.
Imports `agents`, `cluster`, `envs`, `errors`, `papers/dl2/bound`, `reproducing`, `runs`, `slowdown` and `traces`; of other packages
`policies`.
"""
