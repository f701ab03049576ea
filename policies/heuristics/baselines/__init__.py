"""Baselines and controls that papers on learned schedulers compare with.
Imports `api`, `heuristics/allocation`, `heuristics/orders`, `model`, `options`, `ordering`, `placement`, `selection` and
`speeds`.
"""
