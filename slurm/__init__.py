"""Files that Slurm loads (`plugin`), their installation (`setup`), a real Slurm on one machine (`minicluster`), Headway on it
(`testbed`), the demonstration of both (`demo`), experiments with real jobs (`experiments`), and the `headway-minicluster` command
(`cli`). Imports `controller`, `headway_job`, `policies`, `protos` and `simulator`.
"""
