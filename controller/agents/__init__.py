"""The service to which node agents connect: admission, streams, commands, reports. Imports `profiles`, `slurm` and `base`."""
