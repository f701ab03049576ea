"""What a run came to: rows, metrics, fragmentation, tables. Imports `engine` and `traces`."""
