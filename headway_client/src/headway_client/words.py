"""Words of the protocol as enumerations that are open: a word of a later controller becomes a member of its own."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

W = TypeVar("W", bound="Word")


class Word(str, Enum):
    """A word of the protocol. It equals its text. Invariant: each text is a word, so no answer fails because of a new one."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word

    def __reduce_ex__(self, _protocol: object) -> Any:
        # Python before 3.11.4 would use the name, by which a new word is not found again.
        return type(self), (self._value_,)

    @property
    def known(self) -> bool:
        """True when this version of the package knows the word. The empty one means that none was sent."""
        return bool(self._value_) and self._value_ in type(self)._value2member_map_

    def __str__(self) -> str:
        return str(self._value_)


class JobState(Word):
    """State of a job as Headway sees it."""

    WAITING = "waiting"
    """It waits for a policy to place it."""
    STARTING = "starting"
    """It is placed and released; Slurm is about to start it."""
    YIELDED = "yielded"
    """It was given to Slurm to place."""
    RUNNING = "running"
    INELIGIBLE = "ineligible"
    """Slurm would not start it yet: it is held by its user, depends on another job, or begins later."""
    UNMANAGED = "unmanaged"
    """Slurm schedules it, without Headway."""
    ENDED = "ended"
    ARRAY = "array"
    """All tasks of an array together."""
    UNKNOWN = ""
    """The controller sent no state."""


class EventKind(Word):
    """Kind of an event."""

    PLACED = "placed"
    STARTED = "started"
    ENDED = "ended"
    HELD = "held"
    RELEASED = "released"
    PREEMPT = "preempt"
    ADVICE = "advice"
    DECISION = "decision"
    FALLBACK = "fallback"
    POLICY = "policy"
    ERROR = "error"
    UNKNOWN = ""
    """The controller sent no kind."""


class PreemptionStage(Word):
    """How far a preemption has come."""

    ASKED = "asked"
    """The ranks were asked to save; they train on until they have."""
    SAVED = "saved"
    """All ranks have saved and wait."""
    STOPPED = "stopped"
    """The job is back in the queue."""
    STARTED = "started"
    """It runs again. The last stage where no agent reports steps."""
    RESUMED = "resumed"
    """It has made a step since then. An end."""
    CALLED_OFF = "called off"
    """The job was left where it is. An end."""
    OVER = "over"
    """The job ended before it was stopped, or before it trained again. An end."""
    UNKNOWN = ""
    """The controller sent no stage."""


class PreemptionEndReason(Word):
    """Reason for which a preemption was called off, or is over."""

    NOT_NEEDED = "not needed"
    """The job for which it was to be stopped no longer waits."""
    NOT_SAVED = "not saved"
    """It has not saved in time, or cannot."""
    NOT_STOPPED = "not stopped"
    """Slurm did not stop it."""
    JOB_ENDED = "job ended"
    """The job ended, or is no longer known, before it was stopped or before it trained again."""
    UNKNOWN = ""
    """It has not ended so, or a controller of an earlier version has recorded it."""


class PreemptionCause(Word):
    """Origin of a preemption."""

    OPERATOR = "operator"
    USER = "user"
    """The job's own user."""
    THRESHOLD = "threshold"
    POLICY = "policy"
    SLURM = "slurm"
    """Slurm's rules of preemption give its place to another job."""
    UNKNOWN = ""
    """The controller sent no cause."""


class PreemptionWay(Word):
    """How a preempted job saves its work and continues."""

    CHECKPOINT = "checkpoint"
    """Its ranks save at the agents' request."""
    SIGNAL = "signal"
    """It saves and requeues itself on SIGUSR1."""
    NONE = "none"
    """It is stopped by force, and its work since its last checkpoint is lost."""
    UNKNOWN = ""
    """The controller sent no way."""


class SpeedSource(Word):
    """Source of a job's throughput alone."""

    ALONE = "alone"
    """Windows of this job without neighbours."""
    STORE = "store"
    """Other jobs of its kind."""
    PREDICTED = "predicted"
    """Its profile, and the bandwidth of its links."""
    UNKNOWN = ""
    """The throughput alone is not known."""


class Reason(Word):
    """Reason for which the controller refused a call."""

    NOT_READY = "not-ready"
    """The controller runs, but has not read Slurm yet."""
    JOBS_PRIVATE = "jobs-private"
    """Slurm hides jobs from other users, and every user can open this socket."""
    ADMIN_ONLY = "admin-only"
    """Only root and the controller's user may make this call, through admin.sock."""
    INVALID_JOB_ID = "invalid-job-id"
    """The text is not a job id."""
    UNKNOWN_JOB = "unknown-job"
    """Neither Slurm nor Headway's journal knows the job."""
    NOTHING_MEASURED = "nothing-measured"
    """No agent has measured the job, or that was too long ago."""
    NO_AGENTS = "no-agents"
    """The controller serves no agents, so nothing is measured."""
    INVALID_ADDRESS = "invalid-address"
    """The text is not an address of a policy server."""
    POLICY_UNUSABLE = "policy-unusable"
    """The policy server failed a check; the policy stays as it was."""
    INVALID_PREEMPTION = "invalid-preemption"
    """The request names nodes, GPUs or a time limit that no placement can have."""
    NOT_PREEMPTIBLE = "not-preemptible"
    """The job cannot be stopped, or not now."""
    NOT_RESIZABLE = "not-resizable"
    """The job cannot have that number of GPUs."""
    JOURNAL_FAILED = "journal-failed"
    """The journal could not be written, so nothing was done."""
    PROFILES_UNREADABLE = "profiles-unreadable"
    """The store of measurements cannot be read."""
    USER_NOT_ACCEPTED = "user-not-accepted"
    """The call names a user, and this caller may not make calls for others."""
    NOT_PROFILABLE = "not-profilable"
    """No agent of the job's nodes can profile it now, or the number of steps is not possible."""
    NOT_YOUR_JOB = "not-your-job"
    """The job belongs to another user."""
    CHANGES_SPENT = "changes-spent"
    """The user has requested as many changes within the last hour as the operator allows."""
    TOO_MANY_CALLS = "too-many-calls"
    TOO_MANY_WATCHERS = "too-many-watchers"
    """The user, or all users together, watch events too often already."""
