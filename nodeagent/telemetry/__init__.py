"""What the kernel and the devices say of the node: GPUs, network interfaces, Slurm jobs, topology. Imports `jobsocket`,
`identity`, `wire`.
"""
