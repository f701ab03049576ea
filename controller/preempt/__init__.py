"""Stopping a job so that no saved step is lost: which jobs can come back, what their ranks report, and each attempt
from request to requeue. Imports `agents`, `observe`, `state`, `slurm`, `base`.
"""
