"""Models that look at one job alone: how spread it is, at what size, on which kind of node, on which GPUs.
Imports `cluster`, `slowdown/api`, `slowdown/base`, `slowdown/fitting`, `slowdown/links` and `slowdown/profiles`; of other
packages `policies`.
"""
