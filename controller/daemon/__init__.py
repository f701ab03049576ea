"""The long-running programs: the controller, put together from its parts, and the watchdog.
Imports `admin`, `agents`, `base`, `contention`, `cycle`, `forecast`, `notify`, `observe`, `preempt`, `slurm` and `state`; of other
packages `nodeagent` and `policies`.
"""
