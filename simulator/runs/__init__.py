"""Runs from the command line: options, one policy, several in parallel, benchmarks, reports.
Imports `cluster`, `engine`, `errors`, `forecast`, `kernel`, `results`, `slowdown` and `traces`; of other packages `policies`.
"""
