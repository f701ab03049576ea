"""One module for each benchmark of `python -m tests.bench`, with a function `run(quick=...)`."""
