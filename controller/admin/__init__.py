"""What the controller answers on its sockets: the admin service, messages, metrics. Imports everything but `daemon` and `cli`."""
