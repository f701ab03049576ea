"""Results of runs: rows, files, metrics, fragmentation, tables. Imports `engine` and `traces`."""
