"""The errors of this package."""

from __future__ import annotations


class PolicyError(Exception):
    """Base of every error that the package raises on purpose."""


class PolicyLoadError(PolicyError):
    """No such policy, or it could not be made."""


class WireError(PolicyError):
    """A message does not describe a cluster or a decision: the text says which field, and what is wrong with it."""
