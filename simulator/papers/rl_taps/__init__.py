"""The environment of RL-TAPS: GPUs one by one, links between them, jobs that run for some steps on some GPUs.
Imports `agents`, `cluster`, `envs`, `errors`, `papers/programs`, `reproducing`, `runs`, `slowdown` and `traces`; of other packages
`policies`.
"""
