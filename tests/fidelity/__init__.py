"""Comparison of the simulator with real jobs on the mini-cluster: `python -m tests.fidelity`."""
