"""Published experiments, reproduced: policies and controls on equal workloads, results beside the paper's.
Imports `cluster`, `engine`, `errors`, `results`, `runs`, `slowdown` and `traces`; of other packages `policies`.
"""
