"""Changes of jobs in Slurm: what to write into a job, and the loop that writes until the job is as wanted.
Imports `base`, `slurm/client`, `slurm/hostlist`, `slurm/model` and `slurm/records`.
"""
