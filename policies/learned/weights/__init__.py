"""Weights with a model card beside them, checked before they are loaded. Needs no torch."""
