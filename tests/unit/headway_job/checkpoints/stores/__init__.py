"""Tests of the places where checkpoints are kept."""
