"""Heuristics from the literature, and one of our own. Imports `ordering`, `placement` and `speeds`, nothing learned."""
