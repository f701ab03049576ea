"""The errors of this package."""

from __future__ import annotations


class AgentError(Exception):
    """Base of every error that the node agent raises on purpose."""


class ConfigurationError(AgentError):
    """The configuration file is wrong: the text names the file, the key and the mend."""


class FrameError(AgentError):
    """A job sent something that is no frame. It costs that connection, and nothing else."""


class IdentityError(AgentError):
    """The process at the other end cannot be traced to a Slurm job of this node."""


class SocketError(AgentError):
    """The job socket cannot be opened: the text says what is in the way, and the mend."""


class TelemetryError(AgentError):
    """A measurement could not be taken at all, and will not be by asking again soon."""
