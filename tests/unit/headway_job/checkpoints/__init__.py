"""Tests of checkpoints with the real torch."""
