"""The client for ordinary programs. Imports `answers`, `calls`, `errors`, `limits`, `sockets`, `steps` and `wire`."""
