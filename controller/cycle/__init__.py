"""The path of one cycle: decide, plan, apply, and the steps between. Imports `preempt`, `observe`, `state`, `slurm`, `base`."""
