"""The edge to gRPC: fields of protobuf messages, options of channels, and the error that the end of a call means.
Imports `errors` and `words`.

Protobuf is read and written here, because generated code would tie users' environments to one version of the protobuf package.
"""
