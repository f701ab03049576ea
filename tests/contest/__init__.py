"""Comparison of policies on real DDP jobs, on a mini-cluster with limited link rates: `python -m tests.contest`."""
