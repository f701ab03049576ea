"""The `headway` command: `app.py` lists its commands.
Imports `admin`, `base`, `daemon`, `profiles` and `slurm`; of other packages `nodeagent`, `policies`, `protos` and `simulator`.
"""
