"""Checkpoints of training scripts: when to save, what, where, and how it is restored.
Imports `hook`, `job_log`, `started`.
"""
