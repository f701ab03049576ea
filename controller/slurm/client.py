"""What the controller asks of Slurm: the only seam between Headway and a cluster.

Three clients keep this protocol: the command line (default), pyslurm, and the embedded emulation. Slurm stays the
authority: it starts jobs, enforces limits and accounts. Every verb takes several jobs, because a cluster submits several
at once; every verb that changes something answers with the jobs that it failed for, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

HOLD_MARK = "headway:hold"
"""Token in a job's admin comment: Headway holds this job, and Headway will release it."""
USER_HOLD_MARK = "headway:user-hold"
"""Token in a job's admin comment: the user put this hold on; Headway leaves the job alone until the user takes it off."""

PIN_MARK = "headway:pinned"
"""Token in a job's admin comment: Headway has placed and released this job, and it has not started yet. It takes the place of
HOLD_MARK, and goes when the job starts, is held again, or is given to Slurm."""
IMPOSSIBLE = "BadConstraints"
"""The reason of a pending job that Slurm has put on hold by itself, because no nodes can ever carry it out as it asks."""


class JobKey(NamedTuple):
    """Identity of a job. Slurm may issue an id again after losing its newest jobs, so the submit time belongs to it.

    Every requeue gives the job a new submit time (measured on 22.05: while it is COMPLETING it keeps the old one, back in the
    queue it has the new one, and `restarts` is one higher): a requeued job is followed by its id and its restarts.
    """

    job_id: str
    """"123", or "123_4" for an array task: what users see and what every Slurm command takes."""
    submit_time_s: int
    """Seconds since the Unix epoch."""


class Phase(Enum):
    """Slurm's job states, as far as Headway tells them apart."""

    PENDING = "pending"
    CONFIGURING = "configuring"
    RUNNING = "running"
    COMPLETING = "completing"
    SUSPENDED = "suspended"
    ENDED = "ended"

    @property
    def holds_nodes(self) -> bool:
        """Whether a job in this phase keeps its GPUs from others."""
        return self in {Phase.CONFIGURING, Phase.RUNNING, Phase.COMPLETING, Phase.SUSPENDED}


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a job asks for, in Slurm's own terms. Exactly one of the three GPU counts is set for a job with GPUs.

    GPUs by type ("gpu:a100:4") count as GPUs; `gpu_type` keeps the type so that it can be asked for again.
    """

    min_nodes: int
    max_nodes: int
    """0: Slurm may choose any number from min_nodes up (the user gave none)."""
    num_tasks: int
    num_cpus: int
    """Minimum of CPUs, all nodes together."""
    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str = ""
    memory_mib_per_node: int | None = None
    memory_mib_per_cpu: int | None = None
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    tasks_per_node: int | None = None
    """--ntasks-per-node; None: the user gave none."""
    cpus_per_task: int | None = None
    """None: not known, and never changed."""
    gpus_fixed: bool = False
    """GPUs of several types, beside other generic resources, or counted in two ways: their number cannot be written anew."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a job holds of one node."""

    node: str
    gpus: int
    gpu_mask: int
    """Bit k: GPU k; 0 = which ones is not known."""
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of a job array, as Slurm tells of it."""

    key: JobKey
    user: str
    name: str
    partition: str
    phase: Phase
    state: str
    """Slurm's own word: PENDING, RUNNING, NODE_FAIL, ..."""
    reason: str
    """Why it is pending, in Slurm's word: JobHeldUser, Dependency, ReqNodeNotAvail, ..."""
    held: bool
    """Priority 0: it does not start until somebody releases it."""
    admin_comment: str
    comment: str
    request: ResourceRequest
    allocated: tuple[NodeShare, ...]
    batch: bool
    requeue: bool
    """False for --no-requeue jobs."""
    restarts: int
    eligible_time_s: float | None
    start_time_s: float | None
    """Start of the current or last run; None before the first."""
    end_time_s: float | None
    time_limit_s: float | None
    """None: unlimited."""
    features: str
    reservation: str
    account: str
    qos: str
    dependency: str
    """In Slurm's words: "afterok:22(unfulfilled)"; empty when there is none left. Slurm does not look again while a job is
    held (measured on 22.05: it stays unfulfilled although job 22 has completed, and clears within a second of the release)."""
    exclusive: bool
    licenses: str
    array_job_id: int | None
    het_job_id: int | None
    raw_id: int | None = None
    """Slurm's own number of the record, which the job's processes know as SLURM_JOB_ID: of a task of an array its own once the
    task has started. None: not told."""

    @property
    def marks(self) -> frozenset[str]:
        """Headway's tokens in the admin comment."""
        return frozenset(self.admin_comment.split()) & {HOLD_MARK, USER_HOLD_MARK}

    @property
    def has_pin_mark(self) -> bool:
        """Whether Headway placed and released it, and has not seen it start yet."""
        return PIN_MARK in self.admin_comment and PIN_MARK in self.admin_comment.split()

    @property
    def is_impossible(self) -> bool:
        """Whether Slurm has put it on hold because no nodes can carry it out as it asks, or as Headway asks for it."""
        return self.held and self.phase is Phase.PENDING and self.reason.startswith(IMPOSSIBLE)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm tells of it."""

    name: str
    state: str
    """Slurm's own words, joined by "+": IDLE, MIXED+DRAIN, DOWN*, ..."""
    available: bool
    """May start jobs now, as far as its state goes."""
    gpus: int
    gpu_type: str
    cpus: int
    memory_mib: int
    features: frozenset[str]
    partitions: frozenset[str]
    reason: str
    address: str = ""
    """NodeAddr: a host name or an address; empty: not known."""


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation that is, or will be, active. Times in seconds since the Unix epoch."""

    name: str
    nodes: frozenset[str]
    start_time_s: float
    end_time_s: float


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """One partition."""

    name: str
    nodes: frozenset[str]
    up: bool
    max_time_s: float | None


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """Queue and cluster at one time. Ended jobs stay in it as long as slurmctld remembers them (MinJobAge)."""

    time_s: float
    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]
    partitions: tuple[SlurmPartition, ...]
    reservations: tuple[SlurmReservation, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """Order to Slurm: when this job starts, it starts on these nodes with that many GPUs on each.

    `gpus_per_node` None leaves the division of a --gpus job to Slurm (it cannot be told an uneven one).
    """

    key: JobKey
    nodes: tuple[str, ...]
    gpus_per_node: int | None
    original: ResourceRequest
    """What the user asked for, before Headway changed anything; or the same in another size."""
    resized: bool = False
    """It is in another size: tasks, CPUs and memory change with the GPUs."""


class FailureReason(Enum):
    """Kind of a failure, for the code that has to react to it; the message is for people only."""

    REFUSED = "refused"
    """Slurm does not make this change, or the client may not ask for it."""
    GONE = "gone"
    """The job is no longer there, or another job has its id: nothing is left to do for it."""
    UNAVAILABLE = "unavailable"
    """slurmctld did not answer: whether the change happened is not known until the job is read again."""
    ENDED_FIRST = "ended first"
    """The job had ended when Slurm requeued it. It is held in the queue, without Headway's mark, until its user decides on it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a verb failed for one job."""

    message: str
    reason: FailureReason = FailureReason.REFUSED

    @property
    def gone(self) -> bool:
        """Whether nothing is left to do for the job, because it is no longer there."""
        return self.reason is FailureReason.GONE

    @property
    def unavailable(self) -> bool:
        """Whether slurmctld did not answer, so that the job must be read again to know whether it was changed."""
        return self.reason is FailureReason.UNAVAILABLE


Failures = Mapping[JobKey, Failure]
"""Jobs that a verb failed for; empty when it worked for all."""


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What does not change while slurmctld runs."""

    version: tuple[int, int, int]
    cluster_name: str
    client: str
    """command-line, pyslurm or embedded."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """slurm.conf as `scontrol show config` tells it, as far as the client can."""


@runtime_checkable
class SlurmClient(Protocol):
    """The verbs. Each has a time limit of its own and raises SlurmUnavailableError when slurmctld does not answer at all.

    Invariant of every changing verb: it acts only on the job with that id *and* that submit time, and reports a job as done
    only after reading it back or after Slurm's own confirmation.
    """

    async def facts(self) -> SlurmFacts:
        """Version, cluster name and settings."""

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything: the one bulk query."""

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only; those that are gone are left out."""

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs and put HOLD_MARK into their admin comment (added, never overwritten), in the place of PIN_MARK.

        It is a hold that each job's user may release (reason JobHeldUser), as far as job_submit.lua lets them.
        """

    async def unmark(self, keys: Sequence[JobKey], mark: str, instead: str = "") -> Failures:
        """Take a token of ours out of the admin comment, and put another one in; everything else in it stays."""

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a token of ours to the admin comment; everything else in it stays."""

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes, and let them start as soon as they are released (begin time = now).

        Every job that is not among the failures has been read back, and asks for exactly what its pin says.
        """

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back."""

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Take the hold off: Slurm may start the jobs from now on."""

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""

    async def requeue_hold(self, keys: Sequence[JobKey]) -> Failures:
        """Stop running jobs and put them back into the queue, held and marked. Ended jobs are failures, never restarted."""

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Not before this time (seconds since the Unix epoch); None = now."""
