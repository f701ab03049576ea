"""Weights with a model card beside them, checked before they are loaded. No torch is needed. Imports `documents` and `errors`."""
