"""The contents of each page, computed from the controller's answers. Pure functions; the templates turn their results into HTML.
Imports `headway_client`.
"""
