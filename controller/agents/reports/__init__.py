"""Reports of agents: checked, given the controller's time, and stored. Imports `profiles`, `slurm` and `base`."""
