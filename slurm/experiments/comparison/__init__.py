"""Comparison of policies on the same real jobs, on a mini-cluster with limited link rates.
Imports `demo`, `experiments/errors`, `experiments/machine`, `experiments/slurm_log`, `minicluster` and `testbed`; of other packages
`headway_job` and `policies`.
"""
