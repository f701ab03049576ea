"""Policies that share out several resources, or resize jobs: DRF, Tetris, Optimus.
Imports `api`, `model`, `options`, `ordering`, `placement` and `speeds`.
"""
