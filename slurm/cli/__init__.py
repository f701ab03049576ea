"""The `headway-minicluster` command: a real Slurm on one machine, and experiments with real jobs on it.
Imports `errors`, `experiments`, `minicluster`, `prerequisites`, `signals` and `testbed`; of other packages `policies`.
"""
