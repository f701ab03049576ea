"""Algorithms that recipes share: PPO, actor-critic, REINFORCE, deep Q-learning, imitation and evolution, over distributions of
actions; with rollouts, advantages and replay memories.
Imports `errors`.
"""
