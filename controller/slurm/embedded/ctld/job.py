"""A submission, and slurmctld's record of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from zlib import crc32

from controller.slurm.model.job import NodeShare, Phase, ResourceRequest, SlurmJob

HELD_BY_USER = "JobHeldUser"
HELD_BY_ADMIN = "JobHeldAdmin"
REQUEUED_HELD = "job_requeued_in_held_state"
LAUNCH_FAILED_HELD = "launch_failed_requeued_held"

DONE_STATES = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"})


class Requeue(Enum):
    """Requeue of a job after its tasks have ended: none, to run again, or to be held."""

    NO = "no"
    FREE = "free"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submission by sbatch, with facts that Slurm cannot know: how long the job will run, and how it behaves."""

    request: ResourceRequest
    duration_s: float
    """True run time without slowdown by other jobs, in seconds; hidden from every client."""
    model: str = ""
    """Name of the model for slowdown models; empty when not known."""
    batch_size: int | None = None
    """Examples of a training step over all its GPUs."""
    user: str = "alice"
    name: str = "train"
    partition: str = ""
    """Empty: the default partition."""
    time_limit_s: float | None = None
    hold: bool = False
    """True: submitted with --hold."""
    begin_time_s: float | None = None
    dependency: str = ""
    """Dependencies as for sbatch: "afterok:5,afterany:7", "singleton"."""
    array: tuple[int, ...] = ()
    """Task ids; none = no array."""
    throttle: int = 0
    """Most tasks at once (the % of --array); 0 = all."""
    features: str = ""
    """"fast", "fast&nvlink" or "fast|slow"."""
    reservation: str = ""
    exclusive: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    account: str = ""
    qos: str = "normal"
    comment: str = ""
    admin_comment: str = ""
    requeue: bool = True
    batch: bool = True
    """False: salloc or srun."""
    het_components: int = 0
    """Components of a heterogeneous job, all alike; 0 = an ordinary job."""
    exit_code: int = 0
    """Other than 0: the job ends as FAILED."""
    traps: frozenset[str] = frozenset()
    """Signals that the job survives. With "TERM" among them it runs on for KillWait."""
    never_starts: bool = False
    """True: Slurm finds no nodes for it, whatever is free."""
    unfit_nodes: frozenset[str] = frozenset()
    """Nodes on which Slurm does not start it, whatever is free there."""
    free_choice_only: bool = False
    """True: Slurm calls it impossible (BadConstraints) while it is bound to nodes."""
    launch_fails: bool = False
    """True: its launch fails, and Slurm requeues it held."""

    @property
    def user_id(self) -> int:
        """Return a number for the user, always the same."""
        return 1000 + crc32(self.user.encode()) % 50_000


@dataclass(slots=True)
class Job:
    """slurmctld's record. Invariants: `allocated` is not empty exactly while `phase.occupies_nodes`; `priority` 0 means held."""

    job_id: str
    submission: Submission
    request: ResourceRequest
    partition: str
    submit_time_s: int
    priority: int
    sequence: int
    """Order of arrival in the queue."""
    begin_time_s: float | None
    time_limit_s: float | None
    admin_comment: str
    requeue: bool
    dependency: str = ""
    """Dependencies that are not fulfilled yet."""
    array_job_id: int | None = None
    het_job_id: int | None = None
    raw_id: int | None = None
    """Slurm's number of the record; a task of an array has none before it starts."""
    hold_reason: str = ""
    reason: str = "None"
    phase: Phase = Phase.PENDING
    state: str = "PENDING"
    allocated: tuple[NodeShare, ...] = ()
    restarts: int = 0
    eligible_time_s: float | None = None
    start_time_s: float | None = None
    end_time_s: float | None = None
    run: int = 0
    """Counts starts, so that an event of an earlier run is recognised."""
    limit_at_s: float = 0.0
    """Time at which the present run reaches its time limit. Valid only with a limit, and while the job is not suspended."""
    suspended_at_s: float = 0.0
    saved_work_s: float = 0.0
    """Work of earlier runs that a checkpoint has saved, in seconds: later runs do not repeat it. Hidden from every client."""
    after: Requeue = Requeue.NO
    gpu_masks: dict[str, int] = field(default_factory=dict)
    """Which GPUs it takes of each node that it is bound to; a node that is not here gives the lowest free ones."""
    signals: list[str] = field(default_factory=list)
    """Signals delivered so far, all runs."""
    starts: list[tuple[float, tuple[NodeShare, ...]]] = field(default_factory=list)
    """Time and occupied resources of every start, for tests to compare with what a client saw."""
    shown: tuple[tuple[object, ...], SlurmJob] | None = field(default=None, repr=False, compare=False)
    """The newest view that clients received, and the facts from which it was made."""

    @property
    def held(self) -> bool:
        """True while the job waits for a release."""
        return self.priority == 0

    @property
    def num_gpus(self) -> int:
        """GPUs that it occupies now."""
        return sum(share.gpus for share in self.allocated)

    def reset_for_requeue(self, now_s: float, begin_time_s: float, sequence: int) -> None:
        """Put the job back into the queue, with a new submit time, by which Slurm's accounting tells the two runs apart."""
        self.submit_time_s = max(int(now_s), self.submit_time_s + 1)
        self.begin_time_s = begin_time_s
        self.eligible_time_s = begin_time_s
        self.end_time_s = None
        self.phase, self.state, self.allocated = Phase.PENDING, "PENDING", ()
        self.sequence = sequence
        self.after = Requeue.NO


def sbatch_request(
    *,
    gpus_per_node: int | None = None,
    gpus: int | None = None,
    gpus_per_task: int | None = None,
    nodes: int | tuple[int, int] | None = None,
    ntasks: int | None = None,
    ntasks_per_node: int | None = None,
    cpus_per_task: int = 1,
    memory_mib_per_node: int | None = None,
    memory_mib_per_cpu: int | None = None,
    nodelist: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> ResourceRequest:
    """Return the request that slurmctld makes of sbatch's options.

    `gpus_per_node` is --gres=gpu:N or --gpus-per-node, `gpus` is --gpus, `nodes` is -N: a count or a range.
    """
    min_nodes, max_nodes = (1, 0) if nodes is None else (nodes, nodes) if isinstance(nodes, int) else nodes
    tasks = ntasks if ntasks is not None else min_nodes * (ntasks_per_node or 1)
    if ntasks_per_node is not None:
        min_nodes = max(min_nodes, -(-tasks // ntasks_per_node))
    return ResourceRequest(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        num_tasks=tasks,
        num_cpus=tasks * cpus_per_task,
        gpus_per_node=gpus_per_node,
        gpus_per_job=gpus,
        gpus_per_task=gpus_per_task,
        memory_mib_per_node=memory_mib_per_node,
        memory_mib_per_cpu=memory_mib_per_cpu,
        required_nodes=nodelist,
        excluded_nodes=exclude,
        tasks_per_node=ntasks_per_node,
    )
