"""The mini-cluster itself, its accounting, and the demonstration on it."""
