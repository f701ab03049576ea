"""Tests of policies/learned/dl2."""
