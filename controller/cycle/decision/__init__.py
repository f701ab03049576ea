"""From an observation to a plan: the decision, its checks, and its preemptions.
Imports `base`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies`.
"""
