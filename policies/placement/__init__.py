"""Placement of one job: requests, best fit, the papers' placement rules, candidates, the GPUs of a node.
Imports `model`, `rule` and `state`.
"""
