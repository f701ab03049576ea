"""Plays cases on a mini-cluster, on Slurm alone or under Headway, and writes down their outcomes."""
