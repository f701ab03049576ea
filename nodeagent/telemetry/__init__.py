"""Measurements of the node by the kernel and the devices: GPUs, network interfaces, Slurm jobs, topology.
Imports `jobsocket`, `identity` and `wire`.
"""
