"""Worlds that tests of the controller act in: its real parts beside an embedded Slurm, agents and processes."""
