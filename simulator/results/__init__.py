"""Results of runs: rows, files, metrics, fragmentation, tables.
Imports `engine`, `errors`, `kernel` and `traces`; of other packages `policies`.
"""
