"""What agents report: checked, dated by the controller's clock, and stored. Imports `profiles`, `slurm` and `base`."""
