"""Contention-aware scheduling by reinforcement learning (Ryu and Eo): environment and experiment.
Imports `agents`, `cluster`, `engine`, `envs`, `errors`, `kernel`, `reproducing`, `results`, `runs`, `slowdown` and `traces`; of
other packages `policies`.
"""
