"""The exceptions of this package."""

from __future__ import annotations


class AgentError(Exception):
    """Base of every error that the node agent raises on purpose."""


class ConfigurationError(AgentError):
    """The settings file is wrong; the text names the file, the key and the correction."""


class FrameError(AgentError):
    """A job sent an invalid frame. Only this connection is closed."""


class IdentityError(AgentError):
    """The process at the other end belongs to no Slurm job of this node, as far as the agent can find out."""


class SocketError(AgentError):
    """The job socket cannot be opened; the text says why, and what to do."""


class TelemetryError(AgentError):
    """A measurement is not possible, and trying again soon will not help."""
