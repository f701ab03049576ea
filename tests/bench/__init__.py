"""The figures of docs/benchmarks.md: `python -m tests.bench` runs `cases/`."""
