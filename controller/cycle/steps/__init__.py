"""From a plan to changes in Slurm: every changing verb is journaled here. Imports `cycle.decision`, `preempt`, `slurm`, `base`."""
