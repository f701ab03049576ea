"""The path of one cycle: observe, decide, plan, apply; `cycle.py` is the whole of it.
Imports `base`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies`.
"""
