"""The service to which node agents connect: admission, streams, commands, reports.
Imports `base`, `profiles` and `slurm`; of other packages `nodeagent`, `policies` and `protos`.
"""
