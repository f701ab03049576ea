"""The command-line client: runs scontrol and scancel, and parses what they print.
Imports `base`, `slurm/client`, `slurm/hostlist`, `slurm/records` and `slurm/updates`.
"""
