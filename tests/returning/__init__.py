"""A job that can come back, as tests and benchmarks submit it: its program, its batch script, and the files that it writes."""
