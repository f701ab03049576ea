"""A real slurmctld with thousands of nodes that have no slurmd: one process answers for all of them."""
