"""From Slurm's snapshot to the cluster state that a policy reads: roles, shapes, eligible nodes, columns. Imports
`profiles`, `state`, `slurm`, `base`.
"""
