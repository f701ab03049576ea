"""Cluster states for tests of policies, and the rules for every decision on them."""
