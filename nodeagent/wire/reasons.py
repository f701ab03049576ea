"""Reasons for which an agent does not do what the controller asks for. The controller decides by these, never by words."""

from __future__ import annotations

from enum import Enum, auto


class Reason(Enum):
    """The names are those of AnswerReason in agent.proto, without its prefix."""

    UNSPECIFIED = auto()
    """It was done."""
    NO_TRAINERS = auto()
    """The agent knows of no process of the job that trains on this node."""
    RANKS_GONE = auto()
    """A process that was to save is no longer connected."""
    TRAINED_ON = auto()
    """All had saved, and do not stand still any more."""
    NO_CHECKPOINT = auto()
    """A process has not called headway_job.checkpoint, or saves no more."""
    RANK_FAILED = auto()
    """A rank said that it has not saved. The words behind it are the job's own."""
    LATE = auto()
    INCONSISTENT = auto()
    """The ranks here are not of one program, or saved different steps."""
    CALLED_OFF = auto()
    SUPERSEDED = auto()
    """Another save of the same job was asked for."""
    REFUSED = auto()
    """The command cannot be carried out as it is, or this agent does not know it."""
