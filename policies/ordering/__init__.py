"""Decisions from orders of jobs: EASY backfilling, preemption, resizing. Imports `placement` and `selection`."""
