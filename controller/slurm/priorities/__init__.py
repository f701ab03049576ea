"""Slurm's order of waiting jobs, and its rules of preemption: what slurmctld would compute for jobs that are held.

Imports `base`, `slurm/model` and `slurm/scontrol`.
"""
