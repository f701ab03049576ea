"""The hosts of a mini-cluster: namespaces, networks, cgroups, configuration files, accounting."""
