"""Rules that act for the schedulers of MARL's world: the paper's baselines, and controls.
Imports `papers/marl/state`, `papers/marl/world`, `slowdown` and `traces`; of other packages `policies`.
"""
