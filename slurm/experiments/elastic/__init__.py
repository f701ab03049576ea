"""Policies that resize, compared on real elastic DDP jobs: `python -m slurm.experiments.elastic`.
Imports `demo`, `errors`, `minicluster`, `prerequisites` and `testbed`; of other packages `headway_job`.
"""
