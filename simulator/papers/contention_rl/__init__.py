"""Contention-aware scheduling by reinforcement learning (Ryu and Eo): environment and experiment."""
