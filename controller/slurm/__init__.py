"""The SlurmClient protocol and its clients: command line, pyslurm, embedded emulation."""
