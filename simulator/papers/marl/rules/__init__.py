"""Rules that act for the schedulers of MARL's world: the paper's baselines without learning, and controls.
Imports `papers/marl/interference`, `papers/marl/jobs`, `papers/marl/placements`, `papers/marl/queues`, `papers/marl/traffic` and
`papers/marl/world`; of other packages `policies`.
"""
