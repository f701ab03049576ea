"""The second phase of DL2's training: actor-critic with replay, in one cluster or several, or PPO."""
