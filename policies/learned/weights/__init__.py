"""Weights with a model card beside them, checked before they are loaded. No torch is needed. Imports `api`, `documents`, `errors`
and `model`.
"""
