"""Requests and answers as frozen dataclasses, one for each message of the protocol. Imports `errors`, `wire` and `words`."""
