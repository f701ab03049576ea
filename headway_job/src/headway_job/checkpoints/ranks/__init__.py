"""Communication among the ranks of a run, and what they agree on: when all of them save, and that they pause after it.
Imports `checkpoints/errors`, `job_log` and `hook`.
"""
