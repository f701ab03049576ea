"""Fitting models to measurements: reading rows from files, least squares, and the error on held-out rows.
Imports `errors`; of other packages `policies`.
"""
