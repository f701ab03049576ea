"""Predicted speeds of jobs, alone and beside others, from a cluster state. Imports `placement` and `state`."""
