"""Configuration of a Slurm installation: slurm.conf, the topology, and the files that Headway installs.
Imports `base`; of other packages `simulator`.
"""
