"""The parts of one host: namespaces, network, cgroups, files, daemons. Imports only the specification from its parent folder."""
