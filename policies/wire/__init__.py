"""Cluster states, decisions and profiles as messages of protos/headway/v1, and back. Imports the model and the API."""
