"""What benchmarks measure with: figures, clusters, and texts and states of Slurm."""
