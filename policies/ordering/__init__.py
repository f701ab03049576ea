"""Decisions from orders of jobs: EASY backfilling, preemption, resizing.
Imports `api`, `model`, `options`, `placement`, `rule` and `selection`.
"""
