"""Training of learned systems: what can be trained, with which recipe, how often, and where. Imports `weights` and `algorithms`."""
