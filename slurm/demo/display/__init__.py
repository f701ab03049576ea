"""The tables and pictures that the demonstration shows.
Imports `demo/workload`; of other packages `controller` and `policies`.
"""
