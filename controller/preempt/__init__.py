"""Stopping a job so that no saved step is lost: `manager.py` begins each attempt and follows it (`attempts/`), on what the
job's nodes report (`reports/`), within the budget. Imports `agents`, `observe`, `state`, `slurm`, `base`.
"""
