"""Policies over gRPC: the server, the client and the command line. Imports all other folders of `policies`."""
