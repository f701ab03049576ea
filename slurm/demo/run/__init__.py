"""The runs of the demonstration, on a real Slurm and on the emulated one, and the clean-up after them. May import `display`."""
