"""Examples for tests of the controller: what Slurm, agents and the journal would show."""
