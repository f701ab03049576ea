"""Beside slurmctld: observe, decide, plan, apply. Imports `nodeagent`, `policies`, `protos` and `simulator`."""
