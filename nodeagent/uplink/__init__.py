"""The stream to the controller: credentials, sessions, the outbox, and the encoding of rows as messages.
Imports `errors`, `saves` and `wire`; of other packages `policies` and `protos`.
"""
