"""Baselines and controls that papers on learned schedulers compare with, and other published heuristics.
Imports `api`, `heuristics/allocation`, `heuristics/orders`, `model`, `options`, `ordering`, `placement`, `rule`, `selection` and
`speeds`.
"""
