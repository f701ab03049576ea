"""Means of the benchmarks: figures, clusters, and texts and states of Slurm."""
