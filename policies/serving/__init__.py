"""Policies over gRPC: the server, the client, servers as policies, and the command line.
Imports `api`, `documents`, `errors`, `learned`, `model`, `options`, `placement` and `wire`; of other packages `protos`.
"""
