"""Tests of the Python client, in the shape of the package."""
