"""From Slurm's snapshot to the cluster state that a policy reads: roles, shapes, eligible nodes, columns.
Imports `base`, `profiles`, `slurm` and `state`; of other packages `policies` and `simulator`.
"""
