"""Messages as frozen rows: the frames between a job and its agent, the rows of a report to the controller, and their limits.
Imports `errors`; of other packages `policies`.
"""
