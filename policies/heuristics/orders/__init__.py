"""Policies that are one order of jobs and one discipline, one per file.
Imports `api`, `model`, `options`, `ordering`, `placement`, `rule` and `selection`.
"""
