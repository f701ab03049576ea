"""When waiting jobs will start: a process of its own forecasts it from the newest state, and keeps what became of its ranges.
Imports `base`, `cycle`, `observe`, `slurm` and `state`; of other packages `policies` and `simulator`.
"""
