"""The demonstration's runs: on a real Slurm, on the emulated one, and what clears up after them."""
