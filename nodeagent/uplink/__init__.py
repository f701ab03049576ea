"""The stream to the controller: credentials, sessions, the outbox, and the encoding of rows as messages.
Imports `saves`, `jobsocket`, `identity` and `wire`.
"""
