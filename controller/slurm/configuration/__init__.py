"""Files of a Slurm installation: slurm.conf, topology.conf, and what Headway installs.
Imports `base` and `slurm/client`; of other packages `simulator`.
"""
