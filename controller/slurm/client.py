"""The controller's interface to Slurm: the only seam between Headway and a cluster.

Three clients keep this protocol: the command line (default), pyslurm, and the embedded emulation. Slurm stays the
authority: it starts jobs, enforces limits and accounts. Every verb takes several jobs, because several jobs are submitted
at once. Every verb that changes something returns the jobs for which it failed, and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.slurm.model.shares import Shares


@dataclass(frozen=True, slots=True)
class Pin:
    """Order to Slurm to start this job on these nodes, with that many GPUs on each.

    `gpus_per_node` None leaves the division of a --gpus job to Slurm (Slurm accepts no uneven one).
    """

    key: JobKey
    nodes: tuple[str, ...]
    gpus_per_node: int | None
    original: ResourceRequest
    """The user's own request from before Headway changed anything; or the same request in another size."""
    resized: bool = False
    """True when the request is in another size: tasks, CPUs and memory change with the GPUs."""
    gpu_masks: tuple[int, ...] = ()
    """Which GPUs of each node (bit k: GPU k; 0: any); empty: any. Only with `gpus_per_node`, and only where the client
    `can_bind_gpus`; other clients ignore it."""


class FailureReason(Enum):
    """Kind of a failure, for the code that has to react to it; the message is for people only."""

    REFUSED = "refused"
    """Slurm does not make this change, or the client may not ask for it."""
    GONE = "gone"
    """The job is no longer there, or another job has its id: nothing is left to do for it."""
    UNAVAILABLE = "unavailable"
    """slurmctld did not answer: whether the change happened is not known until the job is read again."""
    NOT_OURS = "not ours"
    """The job's user or an operator holds it now. Headway leaves it alone until they release it."""
    ENDED_FIRST = "ended first"
    """The job had ended when Slurm requeued it. It is held in the queue, without Headway's mark, until its user decides on it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a verb for one job."""

    message: str
    reason: FailureReason = FailureReason.REFUSED

    @property
    def gone(self) -> bool:
        """True when the job is gone, or another job has its id: nothing is left to do for it."""
        return self.reason is FailureReason.GONE

    @property
    def not_ours(self) -> bool:
        """True when the job's user or an operator holds it now."""
        return self.reason is FailureReason.NOT_OURS

    @property
    def unavailable(self) -> bool:
        """True when slurmctld did not answer: whether the change happened is not known until the job is read again."""
        return self.reason is FailureReason.UNAVAILABLE


Failures = Mapping[JobKey, Failure]
"""Jobs that a verb failed for; empty when it worked for all."""


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """Facts that do not change while slurmctld runs."""

    version: tuple[int, int, int]
    cluster_name: str
    client: str
    """Name of the client: command-line, pyslurm or embedded."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings in slurm.conf, as far as the client can read them."""


@runtime_checkable
class SlurmClient(Protocol):
    """The verbs. Each has a time limit of its own and raises SlurmUnavailableError when slurmctld does not answer at all.

    Invariant of every changing verb: it acts only on the job with that id *and* that submit time, and reports a job as done
    only after reading it back or after Slurm's own confirmation. `hold`, `pin` and `release` leave a job alone that is held
    without a mark of ours (NOT_OURS): its user or an operator holds it, perhaps since the controller last read it.
    """

    async def close(self) -> None:
        """End every process that the client has started. The client is not used afterwards."""

    async def facts(self) -> SlurmFacts:
        """Return version, cluster name and settings."""

    async def topology(self) -> str:
        """Return what `scontrol show topology` prints; empty when Slurm has no topology."""

    async def shares(self, *, associations: bool = False) -> Shares:
        """Return the fair shares of users, and priorities and preemption of QOS; empty where Slurm has no accounting.

        `associations`: also the priorities of associations, which take another call.
        """

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything: the one bulk query."""

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return those of these nodes that have not registered with slurmctld since it started, or that it does not know."""

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only; those that are gone are left out."""

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs and put HOLD_MARK into their admin comment (added, never overwritten), in the place of PIN_MARK.

        It is a hold that each job's user may release (reason JobHeldUser), as far as job_submit.lua lets them.
        """

    async def unmark(
        self, keys: Sequence[JobKey], mark: str, instead: str = "", *, unless_held: bool = False
    ) -> Failures:
        """Remove one of our tokens from the admin comment, and add another one; the rest of it stays.

        `unless_held`: a released job that is held again, by anybody but Slurm itself, keeps the token, as NOT_OURS. It gets the
        token back if it was held just before the token was removed. Another process of Headway may have held it, and without the
        token the hold would count as its user's or an operator's.
        """

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add one of our tokens to the admin comment; the rest of it stays."""

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes, and let them start as soon as they are released (begin time = now).

        Every job that is not among the failures has been read back, and asks for exactly what its pin says.
        """

    def can_bind_gpus(self, pin: Pin) -> bool:
        """Return whether Slurm can be told which GPUs this job gets, as the pin names them."""

    def stays_bound(self, key: JobKey, original: ResourceRequest) -> bool:
        """Return whether Slurm keeps the job bound to GPUs of certain indices, whatever `unpin` is told."""

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back, except for GPUs of jobs that Slurm keeps bound."""

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Release the jobs: Slurm may start them from now on."""

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""

    async def requeue_hold(self, keys: Sequence[JobKey], *, paused: Collection[JobKey] = ()) -> Failures:
        """Stop running jobs and put them back into the queue, held and marked. Ended jobs are failures, never restarted.

        A job that was held while it ran gets USER_HOLD_MARK: its user releases it. `paused`: those of the jobs whose ranks have
        saved and wait, so that they do not end by themselves.
        """

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Set the earliest start (Unix time); None: now."""
