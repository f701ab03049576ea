"""Algorithms that recipes share: PPO, actor-critic, REINFORCE, deep Q-learning, imitation, evolution and the cross-entropy
method, over distributions of actions; with rollouts, advantages and replay memories.
Imports `errors`.
"""
