"""Weights with a model card beside them, checked before they are loaded. Imports nothing else of `learned`, and no torch."""
