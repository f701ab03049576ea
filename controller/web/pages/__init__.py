"""The contents of each page, computed from the controller's answers. Pure functions; the templates turn their results into HTML.
Imports `base`, `headway_client`.
"""
