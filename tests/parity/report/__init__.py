"""The table of a run, its JSON, and docs/parity.md."""
