"""The contention threshold: which running job is slowed down enough to be moved, and to where. Imports `cycle` and all
below it.
"""
