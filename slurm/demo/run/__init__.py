"""The runs of the demonstration, on a real Slurm and on the emulated one, and the clean-up after them.
Imports `demo/display`, `demo/errors`, `demo/workload`, `errors`, `minicluster` and `testbed`; of other packages `controller`,
`protos` and `simulator`.
"""
