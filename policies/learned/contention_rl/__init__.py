"""Contention-aware scheduling by reinforcement learning (Ryu and Eo): RL-base and RL-Hybrid.
Imports `api`, `errors`, `learned/algorithms`, `learned/guard`, `learned/shadow`, `learned/training`, `learned/weights`, `model`,
`options`, `ordering`, `placement`, `selection` and `speeds`.

`gpu_grid`, `spreads`, `placement_actions` and `features` are the paper's state and action; the training environment and the encoder
for clusters share them, so that both show and do the same.
"""
