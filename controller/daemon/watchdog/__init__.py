"""The watchdog: releases the jobs that Headway holds when the controller is away. Imports `state`, `slurm`, `base`."""
