"""Saves that the controller requests from jobs, and early rows of jobs with news. Imports `jobsocket` and `wire`."""
