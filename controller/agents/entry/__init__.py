"""Decides which calls become an agent's stream: limits, credentials, addresses.
Imports `agents/reports` and `base`; of other packages `nodeagent`, `policies` and `protos`.
"""
