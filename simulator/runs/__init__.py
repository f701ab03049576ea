"""Runs from the command line: one policy, several in parallel, benchmarks. Imports `results` and everything below."""
