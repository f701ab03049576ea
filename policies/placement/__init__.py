"""Placement of one job: requests, best fit, the papers' placement rules, candidates. Imports `model` and `rule`."""
