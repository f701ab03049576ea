"""Files that Slurm loads (`plugin`), their installation (`setup`), a real Slurm on one machine (`minicluster`), Headway on it
(`testbed`), and the demonstration of both (`demo`).
Imports `controller`, `policies`, `protos` and `simulator`.
"""
