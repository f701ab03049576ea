"""Records what a release of Slurm prints, for the tests of parsers. It imports `slurm` only."""
