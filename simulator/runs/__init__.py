"""Runs from the command line: options, one policy, several in parallel, benchmarks, reports. Imports `results` and below."""
