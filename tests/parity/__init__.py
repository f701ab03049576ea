"""The same jobs on Slurm alone and under Headway: `python -m tests.parity` plays `cases/` on two mini-clusters and compares.

A case is data: what users and operators type, in order. `play` types it on a cluster and writes down the outcome, `judge`
compares two outcomes, and `report` makes the table and docs/parity.md.
"""
