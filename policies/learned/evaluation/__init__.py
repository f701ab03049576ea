"""Policies beside each other on the same traces, with intervals."""
