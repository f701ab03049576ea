"""`headway why`: pure functions from the last cycle to an explanation.
Imports `base`, `contention`, `cycle`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of other packages `policies` and
`protos`.
"""
