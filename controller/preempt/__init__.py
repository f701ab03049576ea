"""Stopping a job so that no saved step is lost: `manager.py` begins each attempt and follows it (`attempts/`), on what the
job's nodes report (`reports/`), within the budget.
Imports `agents`, `base`, `observe`, `profiles`, `slurm` and `state`; of other packages `policies` and `protos`.
"""
