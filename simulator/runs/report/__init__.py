"""The comparison of several policies as one HTML page that needs nothing else."""
