"""Policies compared on a cluster of several racks, with sleeping jobs: `python -m slurm.experiments.racks`.
Imports `demo`, `errors`, `experiments/errors`, `experiments/slurm_log`, `experiments/turns` and `prerequisites`; of other packages
`policies`.
"""
