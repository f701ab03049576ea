"""A mini-cluster on which policies take turns on the same real jobs, and the program of these jobs.
Imports `demo`, `experiments/errors`, `minicluster` and `testbed`; of other packages `headway_job`.
"""
