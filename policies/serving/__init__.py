"""Policies over gRPC: the server, the client and the command line.
Imports `api`, `documents`, `errors`, `learned`, `model` and `wire`; of other packages `protos`.
"""
