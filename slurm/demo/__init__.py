"""The demonstration: a dozen training jobs through Headway, then the same jobs through Slurm alone. May import all of slurm."""
