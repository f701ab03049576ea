"""From an order of jobs to a decision: EASY backfilling, preemption, resizing. Imports `placement` and `selection`."""
