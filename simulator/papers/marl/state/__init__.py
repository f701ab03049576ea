"""The state of MARL's world and its laws: data center, jobs, placements, waiting tasks, interference, and transfers over links.
Imports `cluster`, `errors`, `papers/marl/options`, `slowdown` and `traces`.
"""
