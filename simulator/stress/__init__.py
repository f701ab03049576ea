"""Workloads of many shapes, on which a policy should never be much worse than a simple rule.

Imports `cluster`, `policies`, `results`, `runs` and `traces`.
"""
