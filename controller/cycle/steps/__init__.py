"""From a plan to changes in Slurm: every changing verb is journaled here.
Imports `base`, `cycle/decision`, `cycle/refusals`, `observe`, `preempt`, `slurm` and `state`; of other packages `policies`.
"""
