"""SCHED2's k = 4 profiled placements on a real Slurm, measured by agents (docs/policies/sched2.md).
Imports `controller`, `errors`, `experiments/errors`, `experiments/turns`, `policies`, `prerequisites`, `signals`, `testbed`.
"""
