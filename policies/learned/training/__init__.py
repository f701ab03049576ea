"""Training of learned systems: what can be trained, with which recipe, how often, and where.
Imports `api`, `documents`, `errors`, `learned/algorithms`, `learned/weights` and `model`.
"""
