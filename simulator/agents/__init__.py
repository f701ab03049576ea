"""Agents in environments: policies that drive them, episodes, demonstrations. Imports `simulator.envs` and folders below it."""
