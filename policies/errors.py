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


class PeerError(PolicyError):
    """The user at the other end of a connection is not trusted, or not known: the text says who it is, and the mend."""


class WeightsError(PolicyError):
    """Weights or their card are not what they should be: the text says which file, what is wrong with it, and the mend."""


class EncoderError(PolicyError):
    """A learned policy does not know clusters of that form: the text says which it knows."""


class TrainingError(PolicyError):
    """A training run cannot begin, go on or be trusted: the text says where, why not, and the mend."""


class TrainingStoppedError(PolicyError):
    """A training run was asked to stop, and did at a place from where it can go on: the text says how."""


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
    UNTRUSTED = "not trusted"
    """The server's process belongs to a user whose decisions are not taken."""


class PolicyServerError(PolicyError):
    """A policy server gave no usable answer. `fault` is what was wrong."""

    def __init__(self, fault: PolicyFault, address: str, detail: str) -> None:
        super().__init__(f"policy server {address}: {fault.value}: {detail}")
        self.fault = fault
        self.address = address
        self.detail = detail
