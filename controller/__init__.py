"""Beside slurmctld: observe, decide, plan, apply. Imports `headway_client`, `nodeagent`, `policies`, `protos` and `simulator`."""
