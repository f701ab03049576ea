"""Tests of profile windows: how steps are recorded, and how they are divided into compute and communication."""
