"""Reports of agents: checked, given the controller's time, and stored.
Imports `profiles` and `slurm`; of other packages `nodeagent`, `policies` and `protos`.
"""
