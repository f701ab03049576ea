"""Names that the Admin service and its clients share. Imports nothing of Headway, so that the command line starts fast."""

from __future__ import annotations

from enum import StrEnum

ADMIN_SOCKET = "admin.sock"
"""Socket in the runtime folder that takes every call."""
STATUS_SOCKET = "status.sock"
"""Socket that most users may open; it refuses some calls."""
STANDBY_FILE = "standby"
"""File in the runtime folder of a controller that stands by: it contains the name of the machine whose slurmctld is active."""
REASON = "headway-reason"
"""Key of a refused call's reason in its trailing metadata. A call without it was not answered by the controller itself."""
USER = "headway-user"
"""Key in the metadata of a call for another user; accepted from headway-web's user (`web_user`) alone."""
LISTENING = "headway-listening"
"""Key in the first metadata of WatchEvents when the call was accepted; after a refusal gRPC gives the caller empty metadata."""


class Reason(StrEnum):
    """Reason of a refusal, for programs; the text beside it is for users and may change.

    A reason is never renamed. Clients treat an unknown one by its gRPC status code.
    """

    NOT_READY = "not-ready"
    """The controller runs, but has not read Slurm yet."""
    JOBS_PRIVATE = "jobs-private"
    """Slurm hides jobs from other users, and every user can open this socket."""
    ADMIN_ONLY = "admin-only"
    """Only the socket of the controller's user accepts this call."""
    INVALID_JOB_ID = "invalid-job-id"
    """The text is no job id."""
    UNKNOWN_JOB = "unknown-job"
    """Neither Slurm nor the journal knows the job."""
    NOTHING_MEASURED = "nothing-measured"
    """No agent has measured the job, or its measurements are too old and were deleted."""
    NO_AGENTS = "no-agents"
    """The controller serves no agents, so nothing is measured."""
    INVALID_ADDRESS = "invalid-address"
    """The text is no address of a policy server."""
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
    """The call names a user, and its caller may not make calls for others, or the text is no user's name."""
    NOT_PROFILABLE = "not-profilable"
    """No agent of the job's nodes can profile it now, or the number of steps is not possible."""
    NOT_YOUR_JOB = "not-your-job"
    """The job belongs to another user."""
    CHANGES_SPENT = "changes-spent"
    """The user has requested as many changes within the last hour as the operator allows."""
    TOO_MANY_WATCHERS = "too-many-watchers"
    """The user, or all users together, have too many calls of WatchEvents open already."""
