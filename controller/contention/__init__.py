"""The contention threshold: which running job is slowed down so much that it should move, and where to.

Imports `cycle` and all below it.

"""
