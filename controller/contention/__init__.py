"""The contention threshold: which running job is slowed down so much that it should move, and where to.
Imports `agents`, `base`, `cycle`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies`.
"""
