"""Real jobs on a mini-cluster: alone, and a trace of them under a policy.
Imports `demo`, `experiments/errors`, `experiments/fidelity/mix`, `experiments/fidelity/records`, `experiments/machine`,
`experiments/policy_names`, `experiments/slurm_log`, `minicluster` and `testbed`.
"""
