"""The command-line client: runs scontrol and scancel, and parses what they print.
Imports `base`, `slurm/client`, `slurm/hostlist`, `slurm/left_jobs`, `slurm/model`, `slurm/records`, `slurm/time_limit` and
`slurm/updates`.
"""
