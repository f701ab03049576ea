"""Policies over gRPC: the server and the client. Imports everything but nothing of the simulator."""
