"""Estimates of starts on whole traces: made at submission, and compared with what came of them.
Imports `cluster`, `engine`, `errors`, `forecast`, `kernel`, `runs/options`, `runs/scenario` and `traces`; of other packages
`policies`.
"""
