"""Reports of agents: checked, given the controller's time, and stored.
Imports `base`, `profiles` and `slurm`; of other packages `nodeagent`, `policies` and `protos`.
"""
