"""The simulator against real jobs on the mini-cluster: `python -m tests.fidelity`."""
