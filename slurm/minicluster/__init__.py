"""A real Slurm cluster on one machine: its specification, boot, use and end.
Imports `errors`, `prerequisites`, `processes`, `setup` and `signals`; of other packages `policies`.
"""
