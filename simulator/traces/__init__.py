"""Job traces: one form for all, loaders of published logs, generators of the papers' workloads."""
