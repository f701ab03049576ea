"""The errors of this package."""

from __future__ import annotations

from enum import Enum


class PolicyError(Exception):
    """Base of every error that the package raises on purpose."""


class PolicyLoadError(PolicyError):
    """The policy does not exist, or could not be created."""


class WireError(PolicyError):
    """A message does not describe a cluster or a decision: the text names the field and the fault."""


class AddressError(PolicyError):
    """A policy may not be served at this address: the text says which addresses are allowed."""


class ListenError(PolicyError):
    """The address is valid, but the server cannot listen on it now: the text says why, and what to do."""


class PeerError(PolicyError):
    """The user at the other end of a connection is not trusted, or not known: the text names the user and says what to do."""


class WeightsError(PolicyError):
    """A file of weights or its card is invalid: the text names the file and the fault, and says what to do."""


class EncoderError(PolicyError):
    """A learned policy does not support clusters of that form: the text says which it supports."""


class TrainingError(PolicyError):
    """A policy training cannot begin, continue or be trusted: the text says where, why, and what to do."""


class UnfinishedError(TrainingError):
    """A policy or an agent left jobs of a run unfinished: the text names it, and the first of these jobs."""


class TrainingStoppedError(PolicyError):
    """A policy training stopped after a round, on request: the text says how to continue it."""


class PolicyFault(Enum):
    """Kinds of faults of a policy server's answer."""

    UNREACHABLE = "unreachable"
    """No server listens there, or the connection broke."""
    DEADLINE = "deadline"
    """No answer in time."""
    INVALID_REPLY = "invalid reply"
    """The answer is no decision on this snapshot."""
    TOO_LARGE = "message too large"
    """The answer is longer than this program reads, or the request longer than the server reads."""
    WRONG_SEQUENCE = "wrong sequence"
    """The answer is for a different snapshot."""
    FAILED = "failed"
    """The server answered with an error of its own."""
    UNTRUSTED = "not trusted"
    """The server's process belongs to a user that is not trusted."""


class PolicyServerError(PolicyError):
    """A policy server gave no usable answer. `fault` is the kind of fault."""

    def __init__(self, fault: PolicyFault, address: str, detail: str) -> None:
        super().__init__(f"policy server {address}: {fault.value}: {detail}")
        self.fault = fault
        self.address = address
        self.detail = detail
