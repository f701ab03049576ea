"""Changes of jobs in Slurm: what to write into a job, and the loop that writes until it is so. Imports `slurm`'s modules."""
