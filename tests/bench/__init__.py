"""The figures of docs/benchmarks.md: `python -m tests.bench` runs `cases/`. The modules here are programs of their own, which
compare and measure learned policies.
"""
