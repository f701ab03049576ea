"""Policies that are one order of jobs and one discipline, one per file. Imports `ordering` and `rule`."""
