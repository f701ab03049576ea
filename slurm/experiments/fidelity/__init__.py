"""Comparison of the simulator with real jobs on a mini-cluster.
Imports `demo`, `experiments/errors`, `experiments/machine`, `experiments/policy_names`, `experiments/slurm_log`, `minicluster`
and `testbed`; of other packages `policies` and `simulator`.
"""
