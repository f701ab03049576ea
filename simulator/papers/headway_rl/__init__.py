"""headway-rl, which follows no paper: its experiment, where jobs share links.
Imports `papers/contention_rl`, `reproducing`, `slowdown` and `traces`.
"""
