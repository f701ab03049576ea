"""Queue and cluster as Slurm shows them: jobs, nodes, partitions, reservations, shares. Values only; nothing here asks Slurm.
Imports `slurm/birthmark`.
"""
