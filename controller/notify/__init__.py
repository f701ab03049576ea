"""Notifications about jobs, sent to a web address or given to a program of the site, from threads beside the loop.
Imports `base`, `cycle`, `slurm` and `state`; of other packages `policies`.
"""
