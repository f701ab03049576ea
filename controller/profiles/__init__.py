"""Measurements of jobs by agents, and results from them: windows, sensitivities, fits, and the store on disk.

Imports `slurm` and `base`.

"""
