"""The controller's interface to Slurm: the only seam between Headway and a cluster.

Three clients keep this protocol: the command line (default), pyslurm, and the embedded emulation. Slurm stays the
authority: it starts jobs, enforces limits and accounts. Every verb takes several jobs, because several jobs are submitted
at once. Every verb that changes something returns the jobs for which it failed, and why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from controller.slurm.birthmark import birthmark_of

HOLD_MARK = "headway:hold"
"""Token in a job's admin comment: Headway holds this job, and Headway will release it."""
USER_HOLD_MARK = "headway:user-hold"
"""Token in a job's admin comment: the user holds this job; Headway leaves the job alone until the user releases it."""

PIN_MARK = "headway:pinned"
"""Token in a job's admin comment: Headway has placed and released this job, and it has not started yet. It takes the place of
HOLD_MARK, and goes when the job starts, is held again, or is given to Slurm."""
CHECK_MARK = "headway:check="
"""First characters of a token in a job's admin comment, followed by a Unix time: the begin time that job_submit.lua has given to
the job, so that Slurm checks the job at its submission and does not start it. The controller holds the job and ends that time."""
IMPOSSIBLE = "BadConstraints"
"""Slurm's reason of a pending job that Slurm itself has put on hold, because no nodes can ever satisfy its request."""
HELD_BY_USER = "JobHeldUser"
"""Slurm's reason of a held job that its user may release."""
HELD_BY_ADMIN = "JobHeldAdmin"
"""Slurm's reason of a held job that only root, operators and SlurmUser may release."""


class JobKey(NamedTuple):
    """Identity of a job. Slurm may issue an id again after losing its newest jobs, so the submit time is part of the identity.
    (A birthmark is more certain, but not every job has one.)

    Every requeue gives the job a new submit time (measured on 22.05: while it is COMPLETING it keeps the old one, back in the
    queue it has the new one, and `restarts` is one higher): a requeued job is followed by its id and its restarts.
    """

    job_id: str
    """Id that users see and that every Slurm command takes: "123", or "123_4" for an array task."""
    submit_time_s: int
    """Seconds since the Unix epoch."""
    cluster: str = ""
    """ClusterName of the Slurm cluster that issued the id; empty: the one that the controller's own slurm.conf describes, so that
    keys in files of earlier versions mean the same jobs."""


class Phase(Enum):
    """Slurm's job states, as far as Headway distinguishes them."""

    PENDING = "pending"
    CONFIGURING = "configuring"
    RUNNING = "running"
    COMPLETING = "completing"
    SUSPENDED = "suspended"
    ENDED = "ended"

    @property
    def occupies_nodes(self) -> bool:
        """Return whether a job in this phase keeps its GPUs from others."""
        return self is not Phase.PENDING and self is not Phase.ENDED


def is_held(zero_priority: bool, phase: Phase, reason: str) -> bool:
    """Return whether a job in this phase and with this reason is held; only one with priority 0 is.

    Slurm also sets the priority of a job to 0 that an operator suspends, until it resumes; the reason of a hold from before stays.
    """
    return zero_priority and (phase is not Phase.SUSPENDED or reason in {HELD_BY_USER, HELD_BY_ADMIN})


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """Resources that a job asks for, in Slurm's terms. Exactly one of the three GPU counts is set for a job with GPUs.

    GPUs by type ("gpu:a100:4") count as GPUs; `gpu_type` keeps the type so that it can be asked for again.
    """

    min_nodes: int
    max_nodes: int
    """0: the user gave no maximum, so Slurm may choose any number from min_nodes up."""
    num_tasks: int
    num_cpus: int
    """Minimum number of CPUs on all nodes together."""
    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str = ""
    memory_mib_per_node: int | None = None
    memory_mib_per_cpu: int | None = None
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    tasks_per_node: int | None = None
    """Value of --ntasks-per-node; None: the user gave none."""
    cpus_per_task: int | None = None
    """None: not known, and never changed."""
    gpus_fixed: bool = False
    """GPUs of several types, or beside other generic resources, or counted in two ways: their number cannot be rewritten."""
    gpus_per_socket: int | None = None
    """GPUs by socket, which only Slurm places: a job with these alone counts as one without GPUs."""
    max_nodes_in_doubt: bool = False
    """Newer releases (seen on 24.11 to 26.05) show a held job of --gpus with a maximum of one node, whether its user gave --nodes=1
    or no number of nodes; 24.11 shows jobs of --gpus-per-task so too."""

    @property
    def has_gpus(self) -> bool:
        """True when the job asks for GPUs."""
        return bool(self.gpus_per_node or self.gpus_per_job or self.gpus_per_task)

    @property
    def least_gpus(self) -> int:
        """Number of GPUs of the whole job, on the fewest nodes that it asks for."""
        by_node, by_task = self.gpus_per_node or 0, self.gpus_per_task or 0
        return (self.gpus_per_job or 0) + by_node * self.min_nodes + by_task * self.num_tasks


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Resources that a job occupies on one node."""

    node: str
    gpus: int
    gpu_mask: int
    """Bit k is set for GPU k; 0: the GPUs are not known."""
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of a job array, as Slurm shows it."""

    key: JobKey
    user: str
    name: str
    partition: str
    phase: Phase
    state: str
    """Slurm's state: PENDING, RUNNING, NODE_FAIL, ..."""
    reason: str
    """Slurm's reason for a pending job: JobHeldUser, Dependency, ReqNodeNotAvail, ..."""
    held: bool
    """The job does not start until it is released (`is_held`)."""
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
    """In Slurm's words: "afterok:22(unfulfilled)"; empty when there is none left. Slurm does not evaluate it while the job is
    held (measured on 22.05: it stays unfulfilled although job 22 has completed, and clears within a second of the release)."""
    exclusive: bool
    licenses: str
    array_job_id: int | None
    het_job_id: int | None
    raw_id: int | None = None
    """Slurm's number of the record, which the job's processes see as SLURM_JOB_ID. A task of an array gets its own number when it
    starts. None: Slurm has not shown it."""
    expedited: bool = False
    """Submitted with --requeue=expedite (Slurm 25.11 and later): after a failure of a node Slurm keeps its nodes for it, and starts
    it again at once, before all other jobs."""
    nice: int = 0
    """Value of --nice: it is subtracted from the job's priority."""
    user_id: int | None = None
    """None: not known."""
    latest_start_s: float | None = None
    """Latest start (Unix time) with which the job keeps its --deadline, by its least time limit; None without a deadline. Slurm
    ends a pending job after that (state DEADLINE), but none that is held."""
    by_topology: str = ""
    """Option by which the job asks for nodes that are near each other ("--switches=1", "--segment=2"); empty for none."""
    array_throttle: int = 0
    """Maximum number of tasks of its array that run at once (--array=...%N); 0: no maximum, or not shown. Slurm shows it only on
    the record with the array's own number: that of the waiting tasks, and in the end that of the last one."""

    @property
    def is_restarted_by_slurm(self) -> bool:
        """True while Slurm is about to start the job again at once: Headway leaves it alone, and it is not held."""
        return self.expedited and self.restarts > 0 and self.phase is Phase.PENDING and not self.held

    @property
    def marks(self) -> frozenset[str]:
        """Return which of Headway's two marks of holds are in the admin comment."""
        return frozenset(self.admin_comment.split()) & {HOLD_MARK, USER_HOLD_MARK}

    @property
    def birthmark(self) -> str:
        """Return the word of the job's birthmark; empty without one."""
        return birthmark_of(self.admin_comment)

    @property
    def has_pin_mark(self) -> bool:
        """True when Headway has placed and released the job, and has not seen it start yet."""
        return PIN_MARK in self.admin_comment and PIN_MARK in self.admin_comment.split()

    @property
    def is_held_by_others(self) -> bool:
        """True when its user or an operator holds the job: it has no mark of ours, and Slurm itself did not put it on hold.
        Headway must not change the job: a change would override that hold.
        """
        return self.held and not self.is_impossible and not self.marks and not self.has_pin_mark

    @property
    def is_its_users(self) -> bool:
        """True when Headway has handed the job over: its user holds it, and no mark says that Headway holds it too."""
        return self.held and USER_HOLD_MARK in self.marks and HOLD_MARK not in self.marks

    @property
    def is_held_again(self) -> bool:
        """True for a job that was released and that its user, an operator or another process of Headway holds now.

        Headway's own hold is at first one of an operator. Slurm's own holds, of impossible jobs and after a failed launch, have
        other reasons.
        """
        return self.held and self.phase is Phase.PENDING and self.reason in {HELD_BY_USER, HELD_BY_ADMIN}

    @property
    def has_lost_reservation(self) -> bool:
        """True when Slurm has put the job on hold because its reservation is over, and its user has not released it since.

        After a release the state stays until the job starts, and a later hold has another reason (seen on 22.05).
        """
        return self.state == "RESV_DEL_HOLD" and self.held and self.reason not in {HELD_BY_USER, HELD_BY_ADMIN}

    @property
    def is_impossible(self) -> bool:
        """True when Slurm has put the job on hold because no nodes can run it with its own request, or with Headway's."""
        return self.held and self.phase is Phase.PENDING and self.reason.startswith(IMPOSSIBLE)


_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP", "POWER_UP"})


_MAINTENANCE = frozenset({"MAINT", "MAINTENANCE"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm shows it."""

    name: str
    state: str
    """Slurm's states, joined by "+": IDLE, MIXED+DRAIN, DOWN*, ..."""
    available: bool
    """True when its state lets it start jobs now."""
    gpus: int
    gpu_type: str
    cpus: int
    memory_mib: int
    features: frozenset[str]
    partitions: frozenset[str]
    reason: str
    address: str = ""
    """NodeAddr: a host name or an address; empty: not known."""
    gpus_by_type: tuple[tuple[str, int], ...] = ()
    """Types and numbers of the GPUs that have a type."""

    @property
    def is_off(self) -> bool:
        """True while Slurm's power saving has it off."""
        return self.state.endswith("~") or "POWERED_DOWN" in self.state.split("+")

    @property
    def is_asleep(self) -> bool:
        """True while Slurm's power saving has it off, or boots it: no agent runs there."""
        return is_asleep(self.state)

    @property
    def is_usable(self) -> bool:
        """True if users' jobs may start there. During a maintenance only jobs of its reservation do."""
        return self.available and not self.state.endswith("$") and _MAINTENANCE.isdisjoint(self.state.split("+"))


def is_asleep(state: str) -> bool:
    """Return whether power saving has a node in that state off, or boots it: "IDLE+CLOUD+POWERED_DOWN", "IDLE~"."""
    return state.endswith(("~", "#")) or not _ASLEEP.isdisjoint(state.split("+"))


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation that is or will be active. Times are Unix times."""

    name: str
    nodes: frozenset[str]
    start_time_s: float
    end_time_s: float
    magnetic: bool = False
    """True if jobs that may use it need not request it (flag MAGNETIC)."""
    users: frozenset[str] = frozenset()
    """Users that may use it, in Slurm's words: "-ann" is one that may not. Empty: users are not named."""
    accounts: frozenset[str] = frozenset()
    """The same for accounts."""
    draws_only_shorter: bool = False
    """True if Slurm starts a job that does not request it there only if the job's time limit ends before it does (26.05)."""

    def draws(self, user: str, account: str) -> bool:
        """Return whether Slurm also starts jobs of that user and account there that do not request the reservation.

        If it names users and accounts, the job must have both. If it only excludes some, it draws none: a job that Slurm could
        start there then waits for other nodes.
        """
        named = bool(self.users or self.accounts)
        return (
            self.magnetic
            and named
            and (not self.users or user in self.users)
            and (not self.accounts or account in self.accounts)
        )


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """One partition."""

    name: str
    nodes: frozenset[str]
    up: bool
    max_time_s: float | None
    priority_tier: int = 1
    """PriorityTier: jobs of a higher tier come before all others."""
    priority_job_factor: int = 1
    """PriorityJobFactor, from which the partition's part of a job's priority is computed."""
    preempt_mode: str = ""
    """PreemptMode of its jobs in Slurm's words: "REQUEUE", "CANCEL", "OFF", "GANG,SUSPEND"; empty: not known."""
    grace_s: float = 0.0
    """Time that Slurm gives its jobs to end before it stops them for others, seconds."""
    min_nodes: int = 0
    max_nodes: int | None = None
    """Number of nodes that its jobs may have; None: unlimited."""


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """Queue and cluster at one time. It keeps ended jobs as long as slurmctld does (MinJobAge)."""

    time_s: float
    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]
    partitions: tuple[SlurmPartition, ...]
    reservations: tuple[SlurmReservation, ...]
    unread: frozenset[int] = frozenset()
    """Slurm's numbers of jobs that may exist and were not read this time: `jobs` has what was known of them before, or nothing."""

    left_out: int = 0
    """Number of jobs with a mark of ours that a reading of only such jobs left out, because there are too many."""

    def unread_of(self, job_ids: Iterable[str]) -> frozenset[str]:
        """Return those of these jobs about which this snapshot has no news: they count as unchanged, and are not gone.

        A task of an array may be on any record, and so is one of them unless it was read.
        """
        if not self.unread:
            return frozenset()
        wanted = set(job_ids)
        read = {job.key.job_id for job in self.jobs if job.key.job_id in wanted and job.raw_id not in self.unread}
        return frozenset(job_id for job_id in wanted - read if not job_id.isdecimal() or int(job_id) in self.unread)


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


Association = tuple[str, str, str]
"""Account, user, and partition or empty: the unit of Slurm's fair share."""


@dataclass(frozen=True, slots=True)
class QosPreemption:
    """Preemption by and of the jobs of one QOS, as in Slurm's accounting."""

    preempts: frozenset[str] = frozenset()
    """QOS whose jobs it preempts."""
    mode: str = ""
    """PreemptMode of its own jobs in capital letters; empty: that of the cluster."""
    exempt_s: float | None = None
    """Run time within which its own jobs are not preempted, seconds; None: that of the cluster."""
    grace_s: float = 0.0
    """Time that Slurm gives its own jobs to end before it stops them for others, seconds."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Factors of users and QOS. All are empty where Slurm has no accounting."""

    fair_share: Mapping[Association, float] = field(default_factory=dict)
    """Fair-share factor of each association, from 0 to 1."""
    qos: Mapping[str, int] = field(default_factory=dict)
    """Priority of each QOS."""
    preemption: Mapping[str, QosPreemption] = field(default_factory=dict)
    """Preemption by and of each QOS."""
    association: Mapping[Association, int] = field(default_factory=dict)
    """Priority of each association that has one, those of accounts (with an empty user) included; empty: they were not read."""

    def fair_share_of(self, account: str, user: str, partition: str) -> float:
        """Return the factor of a job's association: the one for its partition, else the one for all; 0 without one, as in Slurm."""
        return _of_association(self.fair_share, account, user, partition)

    def association_priority_of(self, account: str, user: str, partition: str) -> float:
        """Return the priority of a job's association: the one for its partition, else the one for all; 0 without one."""
        return _of_association(self.association, account, user, partition)


def _of_association(table: Mapping[Association, float], account: str, user: str, partition: str) -> float:
    for association in ((account, user, partition), (account, user, "")):
        if association in table:
            return table[association]
    return 0.0


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
