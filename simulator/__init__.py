"""The simulator of clusters, with its traces and slowdown models. Imports `policies`."""
