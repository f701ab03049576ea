"""Faults of stories on a real Slurm, and what they need: slow programs and disks, and an agent that lies.

The verbs use the world and the scene of a story; the other modules know nothing of stories.
"""
