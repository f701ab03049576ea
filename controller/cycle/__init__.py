"""The path of one cycle: observe, decide, plan, apply; `cycle.py` has the whole path.
Imports `base`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies`.
"""
