"""A real Slurm cluster on one machine: its specification, boot, use and end. Imports no other package of Headway."""
