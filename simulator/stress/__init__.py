"""Workloads of many shapes, on which a policy should never be much worse than a simple rule. May import `simulator.runs`."""
