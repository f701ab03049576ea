"""`dl2:learn=...` on a real Slurm with emulated elastic jobs: `python -m slurm.experiments.learning`.
Imports `demo`, `errors`, `experiments/errors`, `experiments/turns`, `headway_job`, `policies`, `prerequisites`, `signals` and
`testbed`.
"""
