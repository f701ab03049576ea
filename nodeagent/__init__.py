"""The node agent: it measures the jobs of a compute node and reports to the controller. Imports `policies` and `protos`."""
