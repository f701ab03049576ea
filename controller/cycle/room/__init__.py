"""Room for waiting jobs by Slurm's rules of preemption: the jobs to stop for each of them, and its nodes.
Imports `base`, `cycle/decision`, `observe`, `preempt`, `slurm` and `state`; of other packages `policies`.
"""
