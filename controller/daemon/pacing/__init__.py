"""When the next cycle begins: the wake pipe, the pause between two cycles, and the least time between readings of Slurm.
Imports `base` and `cycle`; of other packages `policies`.
"""
