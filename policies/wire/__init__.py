"""Cluster states, decisions and profiles as messages of protos/headway/v1, in both directions. Imports the model and the API."""
