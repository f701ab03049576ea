"""Parts that environment and agent of SCHED2 share: the state, its features, placements and the window. No torch is needed.
Imports `model`.
"""
