"""Prometheus metrics, and the server that answers scrapes.
Imports `admin/explain`, `agents`, `base`, `contention`, `cycle`, `forecast`, `notify`, `observe`, `preempt`, `profiles`, `slurm`
and `state`; of other packages `policies`.
"""
