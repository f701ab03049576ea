"""Beside slurmctld: observe, decide, plan, apply."""
