"""`headway doctor`: checks an installation, and lists each problem with its remedy.
Imports `base`, `cli/client`, `daemon` and `slurm`; of other packages `nodeagent`, `policies` and `protos`.
"""
