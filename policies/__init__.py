"""Scheduling policies: their interface, published heuristics, learned policies, and the server that answers over gRPC.
Imports `protos`.
"""
