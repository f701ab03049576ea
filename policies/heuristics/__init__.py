"""One published heuristic per file."""
