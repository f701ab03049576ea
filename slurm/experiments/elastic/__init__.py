"""Policies that resize, compared on real elastic DDP jobs: `python -m slurm.experiments.elastic`.
Imports `errors`, `experiments/policy_names`, `experiments/turns`, `prerequisites`, `signals` and
`testbed`.
"""
