"""The emulated slurmctld: its jobs, nodes, scheduler and commands.
Imports `base`, `slurm/birthmark`, `slurm/client`, `slurm/embedded/description`, `slurm/model` and `slurm/user_holds`; of
other packages `policies` and `simulator`.
"""
