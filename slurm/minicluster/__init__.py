"""A real Slurm cluster of several hosts on one machine, made of namespaces."""
