"""Baselines and controls that papers on learned schedulers compare with. Imports the other heuristics."""
