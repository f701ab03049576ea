"""The SlurmClient protocol and its clients: command line, pyslurm, embedded emulation.
Imports `base`; of other packages `policies` and `simulator`.
"""
