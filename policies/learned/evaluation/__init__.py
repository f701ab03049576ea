"""Comparison of policies on the same traces, with intervals. Imports `api`, `errors` and `learned/training`."""
