"""The world of MARL: schedulers with partitions of one data center, which place workers and parameter servers on GPU groups.
Rules act in it, and the agent of `policies/learned/marl`.
Imports `agents`, `cluster`, `envs`, `errors`, `papers/programs`, `reproducing`, `runs`, `slowdown` and `traces`; of other packages
`policies`.
"""
