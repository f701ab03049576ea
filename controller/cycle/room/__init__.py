"""Room for waiting jobs: in one of their partitions, or in the place of other jobs by Slurm's rules of preemption.
Imports `base`, `cycle/decision`, `observe`, `preempt`, `slurm` and `state`; of other packages `policies`.
"""
