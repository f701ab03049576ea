"""The stream to the controller: credential, session, outbox, and the encoding of rows. Imports `saves`, `jobsocket`,
`identity`, `wire`.
"""
