"""`headway doctor`: looks at an installation and lists what is wrong, each with the mend.
Imports `base`, `cli/client`, `daemon` and `slurm`; of other packages `nodeagent` and `policies`.
"""
