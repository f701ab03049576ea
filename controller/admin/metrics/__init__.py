"""Prometheus metrics, and the server that answers scrapes.
Imports `admin/explain`, `agents`, `base`, `contention`, `cycle`, `observe`, `policies`, `preempt`, `profiles`,
`slurm` and `state`.
"""
