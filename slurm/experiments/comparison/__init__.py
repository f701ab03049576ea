"""Comparison of policies on the same real jobs, on a mini-cluster with limited link rates.
Imports `experiments/machine`, `experiments/policy_names`, `experiments/slurm_log`, `experiments/turns` and `minicluster`; of
other packages `policies`.
"""
