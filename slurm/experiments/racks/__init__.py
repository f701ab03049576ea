"""Policies compared on a cluster of several racks, with sleeping jobs: `python -m slurm.experiments.racks`.
Imports `errors`, `experiments/errors`, `experiments/policy_names`, `experiments/slurm_log`, `experiments/turns`, `prerequisites`,
`signals` and `testbed`; of other packages `policies`.
"""
