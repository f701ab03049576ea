"""The socket on which jobs report: its listener, the limits on each user, and the registry of what jobs reported.
Imports `errors`, `identity` and `wire`; of other packages `policies`.
"""
