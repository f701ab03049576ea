"""Profiles of trained models, those of the papers, and their files. Imports `errors`; of other packages `policies`."""
