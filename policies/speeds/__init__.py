"""Predicted speeds of jobs, alone and beside others, from a cluster state. Imports `model`, `placement` and `state`."""
