"""CASSINI's interleaving: when the jobs that share links should send.
Imports `model`, `speeds/job_profiles` and `speeds/links`.
"""
