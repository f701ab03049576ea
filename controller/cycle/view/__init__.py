"""The cycles as the rest of the controller sees them: the result of each, their health, and `ControllerView`.
Imports `base`, `cycle/changes`, `cycle/decision`, `observe`, `preempt`, `slurm` and `state`; of other packages `policies`.
"""
