"""Job traces: one form for all, loaders of published logs, generators of workloads.
Imports `errors`; of other packages `policies`.
"""
