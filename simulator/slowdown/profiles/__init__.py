"""Profiles of trained models, those of the papers, and their files. Imports no slowdown model."""
