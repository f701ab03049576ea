"""The emulated slurmctld: its jobs, nodes, scheduler and commands. Imports the records of `controller.slurm`."""
