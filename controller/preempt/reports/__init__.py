"""Facts about the nodes of a job that may be stopped: reports of their agents, steps that were saved, silent nodes.
Imports `agents`, `base`, `profiles`, `slurm` and `state`; of other packages `protos`.
"""
