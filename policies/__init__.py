"""What to run where: the policy interface, the published heuristics, and the server that answers over gRPC."""
