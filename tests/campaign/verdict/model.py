"""Expected state of each job, from Slurm's accounting and from the promises to its user. It does not depend on Headway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from controller.slurm.embedded.ctld.job import Job
from tests.campaign.plot.story import JobSpec


class Promise(Enum):
    """The promises, by the name under which a broken one is reported."""

    RUNS_ONCE = "a job runs once, and once more for each requeue that somebody requested"
    NOT_AFTER_CANCEL = "a cancelled job does not start"
    NOT_WHILE_HELD = "a job that its user holds does not start"
    NOT_BEFORE_ITS_TIME = "a job starts after its dependencies and its begin time"
    WITHIN_LIMITS = "no more tasks of an array and no more GPUs of a user are in use than Slurm allows"
    ITS_RESOURCES = "a job gets the GPUs, nodes and features that it asked for"
    STOPPED_SAVED = "a job that Headway stops stands still at the step that it has saved"
    NO_SILENT_NODE = "a job that Headway stops does not continue on a node whose agent is silent"
    NOT_HELD_FOR_EVER = "a job that can run ends, once everything works"
    RIGHT_END = "a job ends in the state that its work and its user give it"
    NO_BUG = "no part of Headway fails by an error of its own"
    LEASE = "a controller that works renews its lease"
    TASKS = "a background task that fails is begun again"
    JOURNAL = "the journal opens again"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    promise: Promise
    time_s: float
    """Since the story began."""
    job: str
    text: str

    def __str__(self) -> str:
        what = f"job {self.job}: " if self.job else ""
        return f"[{self.promise.name}] at {self.time_s:.2f} s: {what}{self.text}"


@dataclass(slots=True)
class Expected:
    """Expected state of one job, array task or component."""

    job_id: str
    spec: JobSpec
    submitted_s: float
    after: tuple[tuple[str, Expected], ...] = ()
    """Kind of each of its dependencies, and the job that it is on."""
    held_by_user_s: float | None = None
    """When the user's hold was accepted; None: not held by its user."""
    cancelled_s: float | None = None
    lost: bool = False
    """slurmctld has lost it."""
    runs: int = 0
    running: bool = False
    nodes: tuple[str, ...] = ()
    gpus_in_use: int = 0
    requeues: int = 0
    """Permitted requeues that have not happened yet."""
    ended: str = ""
    gpus: set[int] = field(default_factory=set)
    """Numbers of GPUs that it may get."""
    newest_gpus: int | None = None
    """Number of GPUs to which its user has changed it since it last started; None: no change."""
    releasing_since_s: float = -1.0
    """Time at which the newest release began."""
    stopped_s: float = float("-inf")
    """Time of the newest order to stop it."""
    never: bool = False
    """It can never run: a dependency that fails."""


class Model:
    """Invariant: every event of the accounting has been checked against what was promised at that time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start_s = now()
        self.jobs: dict[str, Expected] = {}
        self.lost: list[Expected] = []
        self.violations: list[Violation] = []
        self.features: dict[str, frozenset[str]] = {}
        """Node → its features."""
        self.limits: Mapping[str, int] = {}
        """User → GPUs at a time."""
        self.changes: Counter[bool] = Counter()
        """Starts of jobs that their users had changed: with the newest number of GPUs (True), or another one that is permitted."""

    @property
    def time_s(self) -> float:
        """Seconds since the story began."""
        return self._now() - self._start_s

    def broken(self, promise: Promise, job: str, text: str) -> None:
        """Record a violation."""
        self.violations.append(Violation(promise, self.time_s, job, text))

    # --- what users and operators were promised

    def submitted(self, job_id: str, spec: JobSpec, after: Iterable[tuple[str, str]] = ()) -> None:
        """sbatch has answered with this id. `after`: kind of each dependency, and id of the job that it is on."""
        gpus = spec.gpus_in_all or spec.gpus_per_node * spec.nodes
        held_s = self.time_s if spec.hold else None
        on = tuple((kind, self.jobs[other]) for kind, other in after)
        self.jobs[job_id] = Expected(job_id, spec, self.time_s, on, held_by_user_s=held_s, gpus={gpus})

    def released(self, job_id: str) -> None:
        """The user's release was accepted."""
        self.jobs[job_id].held_by_user_s = None

    def may_have(self, job_id: str, gpus: int) -> None:
        """Permit another number of GPUs in all: the user's change of the job was accepted."""
        self.jobs[job_id].gpus.add(gpus)
        self.jobs[job_id].newest_gpus = gpus

    def may_requeue(self, job_id: str) -> None:
        """Permit one requeue."""
        if job_id in self.jobs:
            self.jobs[job_id].requeues += 1

    def forgotten(self, job_id: str) -> None:
        """Note that slurmctld was killed, and has lost the job."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            job.lost = True
            self.lost.append(job)

    # --- the accounting

    def account(self, what: str, job: Job, ending: Collection[str] = ()) -> None:
        """Check one line of Slurm's accounting. `ending`: jobs that have ended and still occupy their nodes."""
        expected = self.jobs.get(job.job_id)
        if expected is None:
            return
        if what == "START":
            self._check_start(expected, job)
            expected.runs += 1
            expected.running, expected.ended = True, ""
            expected.nodes = tuple(share.node for share in job.allocated)
            expected.gpus_in_use = sum(share.gpus for share in job.allocated)
            self._check_limits(expected, ending)
        elif what == "REQUEUED":
            expected.running, expected.ended = False, ""
            if expected.requeues <= 0:
                self.broken(Promise.RUNS_ONCE, job.job_id, "was requeued, though nobody requested it")
            expected.requeues -= 1
        else:
            expected.running, expected.ended = False, what

    def _check_start(self, expected: Expected, job: Job) -> None:
        spec, job_id = expected.spec, expected.job_id
        if expected.running:
            self.broken(Promise.RUNS_ONCE, job_id, "was started while it ran")
        if expected.ended:
            self.broken(Promise.RUNS_ONCE, job_id, f"was started after it had ended ({expected.ended})")
        if expected.cancelled_s is not None:
            self.broken(Promise.NOT_AFTER_CANCEL, job_id, f"was cancelled at {expected.cancelled_s:.2f} s, and started")
        held_s = expected.held_by_user_s
        if held_s is not None and held_s < expected.releasing_since_s:
            self.broken(Promise.NOT_WHILE_HELD, job_id, f"its user has held it since {held_s:.2f} s")
        elif held_s is not None and expected.releasing_since_s < 0:
            self.broken(
                Promise.NOT_WHILE_HELD, job_id, f"its user has held it since {held_s:.2f} s, and Slurm started it"
            )
        if spec.begin_in_s is not None and self.time_s < expected.submitted_s + spec.begin_in_s - 1.0:
            self.broken(Promise.NOT_BEFORE_ITS_TIME, job_id, f"it was to begin {spec.begin_in_s:g} s after submission")
        if expected.runs == 0:
            self._check_dependencies(expected)
        self._check_resources(expected, job)

    def _check_dependencies(self, expected: Expected) -> None:
        for kind, on in expected.after:
            if not on.lost and (not on.ended or (kind == "afterok" and on.ended != "COMPLETED")):
                state = f"has ended as {on.ended}" if on.ended else "has not ended"
                self.broken(
                    Promise.NOT_BEFORE_ITS_TIME, expected.job_id, f"was to start {kind} job {on.job_id}, which {state}"
                )

    def _check_limits(self, started: Expected, ending: Collection[str]) -> None:
        spec = started.spec
        running = [job for job in self.jobs.values() if job.running]
        tasks = sum(job.spec.label == spec.label and job.job_id not in ending for job in running)
        if 0 < spec.throttle < tasks:
            self.broken(Promise.WITHIN_LIMITS, started.job_id, f"{tasks} tasks run instead of at most {spec.throttle}")
        most = self.limits.get(spec.user)
        gpus = sum(job.gpus_in_use for job in running if job.spec.user == spec.user)
        if most is not None and gpus > most:
            self.broken(Promise.WITHIN_LIMITS, started.job_id, f"{spec.user} has {gpus} GPUs instead of at most {most}")

    def _check_resources(self, expected: Expected, job: Job) -> None:
        spec, job_id = expected.spec, expected.job_id
        shares = job.allocated
        total = sum(share.gpus for share in shares)
        if total not in expected.gpus:
            self.broken(Promise.ITS_RESOURCES, job_id, f"got {total} GPUs instead of {sorted(expected.gpus)}")
        if expected.newest_gpus is not None:
            self.changes[total == expected.newest_gpus] += 1
            expected.newest_gpus = None
        if len(expected.gpus) == 1:
            most = spec.most_nodes or (spec.nodes if spec.gpus_in_all is None else total)
            if not spec.nodes <= len(shares) <= most:
                self.broken(Promise.ITS_RESOURCES, job_id, f"got {len(shares)} nodes instead of {spec.nodes} to {most}")
        if spec.feature:
            unfit = [share.node for share in shares if spec.feature not in self.features[share.node]]
            if unfit:
                self.broken(Promise.ITS_RESOURCES, job_id, f"{unfit} lack the feature {spec.feature}")

    # --- the end

    def check_end(self, expected: Expected) -> None:
        """Check the state in which it has ended."""
        spec, state = expected.spec, expected.ended
        allowed = {"FAILED"} if spec.exit_code else {"COMPLETED"}
        if expected.cancelled_s is not None:
            allowed = {"CANCELLED"} | (allowed if expected.runs else set())
        if spec.time_limit_s is not None:
            allowed |= {"TIMEOUT"}
        if not spec.requeue or spec.preemptible:
            allowed |= {"NODE_FAIL"}
        if state not in allowed:
            self.broken(
                Promise.RIGHT_END, expected.job_id, f"ended as {state} instead of {' or '.join(sorted(allowed))}"
            )
