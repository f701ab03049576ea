"""A job that can resume, for tests and benchmarks: its program, its batch script, and the files that it writes."""
