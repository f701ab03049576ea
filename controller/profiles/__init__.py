"""Measurements of jobs by agents, and results from them: windows, sensitivities, fits, and the store on disk.
Imports `base` and `slurm`; of other packages `nodeagent`, `policies`, `protos` and `simulator`.
"""
