"""The contention threshold: which running job is slowed down so much that it should move, and where to. New profiles of jobs whose
neighbours have changed.
Imports `agents`, `base`, `cycle`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies` and `protos`.
"""
