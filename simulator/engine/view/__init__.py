"""What policies see of a simulation: the state, duration estimates, measured speeds and profiles. Imports `engine.settings`."""
