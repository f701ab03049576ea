"""The client for programs with asyncio. Imports `answers`, `calls`, `errors`, `limits`, `sockets`, `steps` and `wire`."""
