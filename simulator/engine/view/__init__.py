"""A simulation as policies see it: state, duration estimates, measured speeds and profiles. Imports `engine.settings`."""
