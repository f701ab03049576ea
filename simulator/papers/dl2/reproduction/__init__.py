"""The experiment of `headway-sim reproduce dl2`: settings, contenders, claims, and the runs that are stored with it.
Imports `agents`, `cluster`, `errors`, `reproducing`, `results`, `runs`, `slowdown` and `traces`; of other packages `policies`.
"""
