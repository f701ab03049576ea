"""The Unix socket where jobs report, and what is known of them. Imports `identity` and `wire`."""
