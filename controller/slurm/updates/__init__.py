"""Changes of jobs in Slurm: what to write into a job, and the loop that writes until it is so.
Imports `base`, `slurm/client`, `slurm/hostlist` and `slurm/records`.
"""
