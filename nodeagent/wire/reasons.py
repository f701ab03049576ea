"""Reasons why an agent does not carry out a command. The controller decides by these values, never by the text of a problem."""

from __future__ import annotations

from enum import Enum, auto


class Reason(Enum):
    """The names are those of AnswerReason in agent.proto, without its prefix."""

    UNSPECIFIED = auto()
    """The command was carried out."""
    NO_TRAINERS = auto()
    """No process of the job trains on this node, as far as the agent knows."""
    RANKS_GONE = auto()
    """A process that should save is no longer connected."""
    TRAINED_ON = auto()
    """All ranks had saved, but they are no longer paused."""
    NO_CHECKPOINT = auto()
    """A process has not called headway_job.checkpoint, or can no longer save."""
    RANK_FAILED = auto()
    """A rank answered that it could not save. The text of the problem is from the job."""
    LATE = auto()
    INCONSISTENT = auto()
    """The ranks on this node belong to different programs, or saved different steps."""
    CALLED_OFF = auto()
    SUPERSEDED = auto()
    """Another save of the same job was requested."""
    REFUSED = auto()
    """The command is invalid, or this agent does not know it."""
