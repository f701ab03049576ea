"""Answers of the controller on its sockets: the admin service, messages, metrics.
Imports `agents`, `base`, `contention`, `cycle`, `forecast`, `notify`, `observe`, `preempt`, `profiles`, `slurm` and `state`; of
other packages `policies` and `protos`.
"""
