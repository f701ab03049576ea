"""Comparison of policies on the same traces, with intervals. Imports `training`."""
