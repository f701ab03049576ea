"""The client for ordinary programs. May import everything but `aio`."""
