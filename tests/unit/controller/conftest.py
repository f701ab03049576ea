"""Fixtures of all tests of the controller."""

from tests.unit.controller.worlds.patience import patience

__all__ = ["patience"]
