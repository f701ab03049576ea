"""Jobs as Slurm shows them: identity, phase, request, and the nodes that they have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from controller.slurm.birthmark import birthmark_of
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK

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
