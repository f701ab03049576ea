"""Models of jobs that share a node: measured pairs, and interference of cores and PCIe.
Imports `cluster`, `slowdown/api`, `slowdown/base`, `slowdown/fitting`, `slowdown/gpu_groups` and `slowdown/profiles`; of other
packages `policies`.
"""
