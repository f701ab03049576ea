"""Files of a Slurm installation: slurm.conf, topology.conf, and what Headway installs. Imports `client` and `base`."""
