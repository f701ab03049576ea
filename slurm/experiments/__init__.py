"""Experiments with real, emulated or sleeping jobs on a mini-cluster: policies compared, and the simulator compared with them.
Imports `demo`, `errors`, `minicluster`, `prerequisites`, `signals` and `testbed`; of other packages `controller`, `headway_job`,
`policies` and `simulator`.
"""
