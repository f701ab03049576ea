"""Heuristics from the literature, and one of our own.
Imports `api`, `model`, `options`, `ordering`, `placement`, `rule`, `selection` and `speeds`.
"""
