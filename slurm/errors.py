"""The errors of the mini-cluster. Each text says what is wrong, where, and what to do."""

from __future__ import annotations


class MiniClusterError(Exception):
    """Base of every error that the mini-cluster raises on purpose."""


class SpecError(MiniClusterError):
    """A ClusterSpec asks for something that cannot be built."""


class PrerequisiteError(MiniClusterError):
    """Root, a package or a kernel feature is missing."""


class AlreadyRunningError(MiniClusterError):
    """A cluster of this name is up or booting, with another owner."""


class NotRunningError(MiniClusterError):
    """There is no cluster of this name, or the requested part of it is down."""


class BootError(MiniClusterError):
    """A part of the cluster did not start; the text has the end of its log."""


class CommandError(MiniClusterError):
    """A program failed or took too long; the text has its output."""
