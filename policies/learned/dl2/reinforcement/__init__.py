"""The second phase of DL2's training: actor-critic with replay, in one cluster or several, or PPO.
Imports `learned/algorithms`, `learned/dl2/network`, `learned/dl2/recipe`, `learned/dl2/state_columns`.
"""
