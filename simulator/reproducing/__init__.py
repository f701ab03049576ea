"""Published experiments, reproduced: policies and controls on equal workloads, results beside the paper's. Imports `runs`."""
