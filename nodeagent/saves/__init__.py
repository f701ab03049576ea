"""Saves that the controller requests from jobs, and early rows of jobs with news.
Imports `identity`, `jobsocket` and `wire`; of other packages `policies`.
"""
