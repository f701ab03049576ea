"""Job traces: one form for all, loaders of published logs, generators of workloads. Imports only the simulator's errors."""
