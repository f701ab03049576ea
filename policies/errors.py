"""The errors of this package."""

from __future__ import annotations

from enum import Enum


class PolicyError(Exception):
    """Base of every error that the package raises on purpose."""


class PolicyLoadError(PolicyError):
    """No such policy, or it could not be made."""


class WireError(PolicyError):
    """A message does not describe a cluster or a decision: the text says which field, and what is wrong with it."""


class AddressError(PolicyError):
    """Not an address that a policy may be served at: the text says what is allowed."""


class ListenError(PolicyError):
    """The address is fine, but cannot be listened on now: the text says why, and the mend."""


class PolicyFault(Enum):
    """What was wrong with a policy server's answer."""

    UNREACHABLE = "unreachable"
    """Nobody listens there, or the connection broke."""
    DEADLINE = "deadline"
    """No answer in time."""
    INVALID_REPLY = "invalid reply"
    """It answered with something that is no decision on this snapshot."""
    WRONG_SEQUENCE = "wrong sequence"
    """It answered a different snapshot."""
    FAILED = "failed"
    """It answered with an error of its own."""


class PolicyServerError(PolicyError):
    """A policy server gave no usable answer. `fault` is what was wrong."""

    def __init__(self, fault: PolicyFault, address: str, detail: str) -> None:
        super().__init__(f"policy server {address}: {fault.value}: {detail}")
        self.fault = fault
        self.address = address
        self.detail = detail
