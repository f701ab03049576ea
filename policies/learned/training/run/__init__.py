"""One training in its folder: settings, checkpoints, figures, seeds, early stopping.
Imports `documents`, `errors` and `learned/weights`.
"""
