"""The node's measurements as Prometheus metrics, in a file for node_exporter: this node opens no port for them.
Imports `wire`.
"""
