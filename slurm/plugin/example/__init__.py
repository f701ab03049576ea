"""Example configuration files."""
