"""A mini-cluster on which policies take turns on the same jobs, and the program of those that train.
Imports `demo`, `experiments/errors`, `experiments/slurm_log`, `minicluster` and `testbed`; of other packages `headway_job`.
"""
