"""Decisions from orders of jobs: EASY backfilling, preemption, resizing, the option `gpus`.
Imports `api`, `model`, `options`, `placement`, `rule`, `selection` and `state`.
"""
