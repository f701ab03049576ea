"""The environment of RL-TAPS: GPUs one by one, links between them, jobs that run for some steps on some GPUs.
Imports `cluster`, `envs`, `errors`, `slowdown` and `traces`; of other packages `policies`.
"""
