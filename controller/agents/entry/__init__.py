"""Decides which calls become an agent's stream: limits, credentials, addresses. Imports `base` only."""
