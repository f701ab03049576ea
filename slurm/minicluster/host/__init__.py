"""The parts of one host: namespaces, network, cgroups, files, daemons. Imports `errors`, `minicluster/spec` and `processes`."""
