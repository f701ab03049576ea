"""Measurements of the node by the kernel and the devices: GPUs, network interfaces, Slurm jobs, topology.
Imports `errors`, `identity`, `jobsocket` and `wire`; of other packages `policies`.
"""
