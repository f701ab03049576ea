"""A simulation as policies see it: state, duration estimates, measured speeds and profiles.
Imports `cluster`, `engine/settings`, `kernel`, `slowdown` and `traces`; of other packages `policies`.
"""
