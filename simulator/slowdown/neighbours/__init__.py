"""Models of jobs that share a node: measured pairs, and interference of cores and PCIe. Imports `base`, `profiles`, `fitting`."""
