"""The watchdog: releases the jobs that Headway holds while the controller is away.
Imports `base`, `slurm` and `state`; of other packages `policies`.
"""
