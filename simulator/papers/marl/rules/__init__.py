"""Rules that act for the schedulers of MARL's world: the paper's baselines without learning, and controls.
Imports `papers/marl/state` and `papers/marl/world`; of other packages `policies`.
"""
