"""Where one job goes: requests, best fit, the papers' placement rules, candidates. Imports `model` and `state`."""
