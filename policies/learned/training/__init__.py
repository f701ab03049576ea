"""A training from beginning to end: systems, recipes, its folder, seeds, progress, early stop, resumption. Imports
`weights` and `algorithms`.
"""
