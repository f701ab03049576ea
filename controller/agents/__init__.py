"""The service that node agents dial: admission, streams, commands, clocks. Imports `profiles`, `slurm` and `base`."""
