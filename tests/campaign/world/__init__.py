"""The world of a story: an embedded Slurm, and the processes of Headway in virtual time."""
