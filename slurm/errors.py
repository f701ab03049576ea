"""The errors of the mini-cluster. Each text says what was wrong, where, and the mend."""

from __future__ import annotations


class MiniClusterError(Exception):
    """Base of every error that the mini-cluster raises on purpose."""


class SpecError(MiniClusterError):
    """A ClusterSpec asks for something that cannot be built."""


class PrerequisiteError(MiniClusterError):
    """Root, a package or a kernel feature is missing."""


class AlreadyRunningError(MiniClusterError):
    """Another owner has, or is booting, a cluster of this name."""


class NotRunningError(MiniClusterError):
    """There is no cluster of this name, or the part that was asked for is down."""


class BootError(MiniClusterError):
    """A part of the cluster did not come up; the text carries the end of its log."""


class CommandError(MiniClusterError):
    """A program failed or took too long; the text carries its output."""
