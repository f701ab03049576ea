"""Messages as frozen rows: frames between a job and its agent, rows of a report to the controller, and the bounds of
both. Imports nothing else of the agent but its errors.
"""
