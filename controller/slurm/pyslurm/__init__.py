"""The client over pyslurm, which runs in a process of its own.
Imports `base`, `slurm/client`, `slurm/hostlist`, `slurm/model`, `slurm/records`, `slurm/scontrol`, `slurm/time_limit` and
`slurm/updates`; of other packages `policies`.
"""
