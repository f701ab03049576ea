"""Tasks and threads with an owner, and how often they may run: supervision, groups, pauses between tries, rates.
Imports nothing of Headway.
"""
