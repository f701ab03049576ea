"""Which job a process belongs to, by kernel facts alone: peer credentials, /proc, cgroups. Imports `wire`."""
