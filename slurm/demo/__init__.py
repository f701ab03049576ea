"""The demonstration: a dozen training jobs through Headway, then the same jobs through Slurm alone.
Imports `apt`, `errors`, `minicluster`, `prerequisites` and `testbed`; of other packages `controller`, `policies`, `protos` and
`simulator`.
"""
