"""The Slurm job of a process, found by kernel facts alone: peer credentials, /proc, cgroups.
Imports `errors` and `wire`; of other packages `policies`.
"""
