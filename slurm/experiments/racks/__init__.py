"""Policies compared on a cluster of several racks, with sleeping jobs: `python -m slurm.experiments.racks`.
Imports `errors`, `experiments/policy_names`, `experiments/turns`, `prerequisites`, `signals` and `testbed`; of other packages
`policies`.
"""
