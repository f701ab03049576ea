"""What agents have measured of jobs, and what follows from it: windows, sensitivities, fits, and the store on disk.

Imports `slurm` and `base`.

"""
