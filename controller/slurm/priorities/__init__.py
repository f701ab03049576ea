"""Slurm's order of waiting jobs: what slurmctld would compute for jobs that are held, and so have no priority.

Imports `base`, `slurm/client`, `slurm/scontrol`.
"""
