"""Contention-aware scheduling by reinforcement learning (Ryu and Eo): RL-base and RL-Hybrid.

`board`, `spreads`, `placing` and `features` are the paper's state and action; the environment that a policy is trained in and the
encoder by which it sees a cluster share them, so that both show and do the same.
"""
