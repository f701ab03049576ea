"""The client over pyslurm, which runs in a process of its own. Imports the protocol and the verbs of `controller.slurm`."""
