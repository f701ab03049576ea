"""Agents in environments: policies that drive them, episodes, demonstrations.
Imports `envs`, `errors`, `runs` and `traces`; of other packages `policies`.
"""
