"""`python -m slurm.demo`."""

from slurm.demo.cli import main

main()
