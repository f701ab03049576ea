"""Algorithms that recipes share: replay memories, rollouts, advantages. Imports nothing else of `learned`."""
