"""A real Slurm cluster on one machine: its specification, boot, use and end.
Imports `errors`, `prerequisites` and `processes`; of other packages `policies`.
"""
