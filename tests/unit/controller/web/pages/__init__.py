"""Tests of what each page shows."""
