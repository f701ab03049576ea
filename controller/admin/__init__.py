"""Answers of the controller on its sockets: the admin service, messages, metrics. Imports everything but `daemon` and `cli`."""
