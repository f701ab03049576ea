"""Policies beside each other on real DDP jobs, on a mini-cluster with shaped links: `python -m tests.contest`."""
