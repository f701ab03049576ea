"""A real slurmctld with thousands of nodes that no slurmd serves: one process answers it for all of them."""
