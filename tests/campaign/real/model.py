"""Expected fate of each job, from what its user did and was promised. It does not depend on Headway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise, zip_longest

from tests.campaign.real.records import Line, Row
from tests.campaign.real.story import FAST_NODE, Submission

SECOND_S = 1.5
"""Times of the accounting are whole seconds, and the answer to a command comes after the change."""

ALONE_S = 10.0
"""How long after the lease was stale jobs may still be placed by Slurm alone."""


class RealPromise(Enum):
    """The promises, by the name under which a broken one is reported."""

    SBATCH_WORKS = "sbatch works while slurmctld does"
    RUNS_ONCE = "a job runs once, and once more for each requeue that has a cause"
    NEVER_TWICE_AT_ONCE = "no two runs of a job overlap"
    NOT_AFTER_CANCEL = "a cancelled job does not start"
    NOT_WHILE_HELD = "a job that its user holds does not start"
    NOT_BEFORE_ITS_TIME = "a job starts after its dependencies and its begin time"
    ITS_RESOURCES = "a job gets the GPUs, nodes and features that it asked for"
    NO_STEP_LOST = "a run begins at the step that the runs before have saved"
    NOT_HELD_FOR_EVER = "a job that can run ends, once everything works"
    RIGHT_END = "a job ends in the state that its work and its user give it"
    NO_BUG = "no part of Headway fails by an error of its own"
    LEASE = "a controller that works renews its lease"


@dataclass(frozen=True, slots=True)
class RealViolation:
    """A promise that was broken."""

    promise: RealPromise
    job: str
    text: str

    def __str__(self) -> str:
        what = f"job {self.job}: " if self.job else ""
        return f"[{self.promise.name}] {what}{self.text}"


@dataclass(slots=True)
class Hold:
    """A hold by the job's user, from the answer to it until the release was asked for."""

    from_s: float
    until_s: float | None = None
    late_s: float = 0.0
    """How much later than usual the controller may learn of it, because a fault makes Slurm's programs slow."""
    excused: str = ""
    """Known limit of Headway that makes the hold uncertain."""


@dataclass(slots=True)
class Expected:
    """Expected fate of one job or array task. Times in seconds since the Unix epoch."""

    job_id: str
    spec: Submission
    submitted_s: float
    holds: list[Hold] = field(default_factory=list)
    maybe_held: bool = False
    cancelled_s: float | None = None
    """Answer to its user's scancel."""
    cancel_asked_s: float = 0.0
    """Time at which the user asked for that."""
    maybe_cancelled: bool = False
    requeues_s: list[float] = field(default_factory=list)
    """Requests that may end in a requeue: by its user, by an operator with --force, by a fault on its nodes."""
    preempted_s: list[float] = field(default_factory=list)
    """Requests of operators that it saves and is placed again."""
    killed_s: list[float] = field(default_factory=list)
    """Times at which a fault killed processes of it."""
    launch_failed_s: list[float] = field(default_factory=list)
    """Times at which Slurm had put it back into the queue, held, because slurmd had refused to launch it."""
    gpus: set[int] = field(default_factory=set)
    """Numbers of GPUs that it may get."""
    resized: bool = False
    asked_s: float = 0.0
    """Start of sbatch, which may wait for a slurmctld that is away."""
    never: bool = False
    """It can never run: a dependency has failed."""

    @property
    def held(self) -> bool:
        """True while a hold of its user counts, or may count."""
        return self.maybe_held or any(hold.until_s is None for hold in self.holds)

    def resumed(self, now_s: float, *, certain: bool) -> None:
        """Take note of `scontrol resume`: Slurm gives the job a new priority, so holds of its user count no more (22.05)."""
        self.maybe_held = self.held and not certain
        for hold in self.holds:
            hold.until_s = now_s if hold.until_s is None else hold.until_s


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Time in which Slurm's daemon on a node (or slurmctld, for every node) was away."""

    node: str | None
    from_s: float
    until_s: float

    def touches(self, row: Row) -> bool:
        """Return whether it overlaps a run."""
        assert row.start_s is not None
        end_s = float("inf") if row.end_s is None else row.end_s + SECOND_S
        return (
            (self.node is None or self.node in row.nodes) and self.from_s <= end_s and row.start_s - 1 <= self.until_s
        )


@dataclass(slots=True)
class RealModel:
    """Jobs of a story, and what was broken."""

    disturbances: list[Disturbance] = field(default_factory=list)
    jobs: dict[str, Expected] = field(default_factory=dict)
    labels: dict[int, list[str]] = field(default_factory=dict)
    """Label of a submission → its jobs."""
    violations: list[RealViolation] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)
    """Times at which the lease was stale, so that Slurm placed all jobs."""
    releases: dict[str, list[float]] = field(default_factory=dict)
    """Times at which slurmctld released each job, by its own log."""
    known: list[str] = field(default_factory=list)
    """Events that the known limits explain."""
    preemptive: bool = False
    """Policies may stop running jobs that save."""

    def submitted(self, job_id: str, spec: Submission, time_s: float, begun_s: float | None = None) -> None:
        """sbatch has answered with this id; it was started at `begun_s`, from which --begin=now+N counts."""
        ids = [f"{job_id}_{task}" for task in range(spec.array)] or [job_id]
        self.labels[spec.label] = ids
        for each in ids:
            holds = [Hold(time_s)] if spec.hold else []
            gpus = spec.gpus_in_all or spec.gpus_per_node * spec.nodes
            asked_s = time_s if begun_s is None else begun_s
            self.jobs[each] = Expected(each, spec, time_s, holds, gpus={gpus}, asked_s=asked_s)

    def broken(self, promise: RealPromise, job: str, text: str) -> None:
        """Record a violation."""
        self.violations.append(RealViolation(promise, job, text))

    # ---- after the story

    def check(self, rows: Mapping[str, Sequence[Row]], logs: Mapping[str, Sequence[Line]]) -> None:
        """Compare every job with the accounting and its own log."""
        for job_id, expected in self.jobs.items():
            runs = [row for row in rows.get(job_id, ()) if row.ran]
            lines = logs.get(job_id, ())
            self._check_runs(expected, runs, lines)
            self._check_starts(expected, runs, rows)
            self._check_cancellation(expected, runs, lines)
            self._check_steps(expected, lines)
            self._check_end(expected, rows.get(job_id, ()), lines)

    def _check_runs(self, expected: Expected, runs: Sequence[Row], lines: Sequence[Line]) -> None:
        job_id = expected.job_id
        for before, row in pairwise(runs):
            if before.end_s is None or row.start_s is None or row.start_s < before.end_s:
                self.broken(RealPromise.NEVER_TWICE_AT_ONCE, job_id, f"{row} begins within {before}")
            if not self._has_cause(expected, before, row, lines):
                self.broken(RealPromise.RUNS_ONCE, job_id, f"{row} follows {before} without a cause")
        newest = -1
        for line in lines:
            if line.run < newest:
                self.broken(RealPromise.NEVER_TWICE_AT_ONCE, job_id, f"run {newest} had begun before {line}")
            newest = max(newest, line.run)

    def _has_cause(self, expected: Expected, before: Row, row: Row, lines: Sequence[Line]) -> bool:
        """Return whether something explains that `row` follows `before`."""
        assert before.start_s is not None
        assert row.start_s is not None
        causes = [*expected.requeues_s, *expected.killed_s]
        if any(before.start_s - 1 <= time_s <= row.start_s + 1 for time_s in causes):
            return True
        if any(disturbance.touches(before) for disturbance in self.disturbances):
            return True
        if any(before.start_s - 1 <= time_s <= row.start_s + 1 for time_s in expected.launch_failed_s):
            # A slurmd that was killed in a requeue may take the job for one that still runs. Nothing of it has run then.
            return not any(before.start_s <= line.time_s < row.start_s for line in lines)
        return any(
            line.what == "saved" and before.start_s - 1 <= line.time_s <= row.start_s + 1 for line in lines
        ) and self._was_asked(expected, row)

    def _was_asked(self, expected: Expected, row: Row) -> bool:
        """Return whether an operator or a policy may have asked the job to save, by the start of that run."""
        assert row.start_s is not None
        return self.preemptive or any(time_s <= row.start_s + 1 for time_s in expected.preempted_s)

    def _check_starts(self, expected: Expected, runs: Sequence[Row], rows: Mapping[str, Sequence[Row]]) -> None:
        job_id, spec = expected.job_id, expected.spec
        for row in runs:
            assert row.start_s is not None
            for hold in expected.holds:
                until_s = float("inf") if hold.until_s is None else hold.until_s
                if hold.from_s + hold.late_s + SECOND_S < row.start_s < until_s - SECOND_S and not hold.excused:
                    self.broken(RealPromise.NOT_WHILE_HELD, job_id, f"held since {hold.from_s:.2f}, and {row}")
            if spec.begin_in_s is not None and row.start_s < expected.asked_s + spec.begin_in_s - SECOND_S:
                self.broken(RealPromise.NOT_BEFORE_ITS_TIME, job_id, f"submitted at {expected.submitted_s:.2f}: {row}")
            self._check_dependencies(expected, row, rows)
            self._check_resources(expected, row)

    def _check_cancellation(self, expected: Expected, runs: Sequence[Row], lines: Sequence[Line]) -> None:
        """Slurm forgets a cancellation when the job is requeued before its processes have ended: by itself, or by Headway at the
        same moment."""
        job_id, cancelled_s = expected.job_id, expected.cancelled_s
        if cancelled_s is None:
            return
        own_s = [line.time_s for line in lines if line.what == "requeued" and line.time_s > expected.cancel_asked_s]
        at_once_s = [time_s for time_s in expected.requeues_s if abs(time_s - expected.cancel_asked_s) < SECOND_S]
        requeued_s = sorted([*own_s, *at_once_s])
        late = [(row, s) for row in runs if (s := row.start_s) is not None and s > cancelled_s + SECOND_S]
        for (row, start_s), time_s in zip_longest(late, requeued_s[: len(late)]):
            if time_s is not None and time_s <= start_s + 1:
                self.known.append(f"{job_id} was cancelled at {cancelled_s:.2f} and requeued at {time_s:.2f}: {row}")
            else:
                self.broken(RealPromise.NOT_AFTER_CANCEL, job_id, f"cancelled at {cancelled_s:.2f}, then {row}")

    def _check_dependencies(self, expected: Expected, row: Row, rows: Mapping[str, Sequence[Row]]) -> None:
        assert row.start_s is not None
        for kind, label in expected.spec.after:
            for parent in self.labels.get(label, ()):
                ended = [
                    other
                    for other in rows.get(parent, ())
                    if other.ended and (other.end_s or 0) <= row.start_s + 1
                    if kind == "afterany" or other.state == "COMPLETED"
                ]
                if not ended and not (kind == "afterany" and self._was_cancelled(parent, rows, row.start_s)):
                    self.broken(RealPromise.NOT_BEFORE_ITS_TIME, expected.job_id, f"{kind} of {parent}: {row}")

    def _was_cancelled(self, parent: str, rows: Mapping[str, Sequence[Row]], start_s: float) -> bool:
        """Return whether a job ended by a cancellation, before it had run, although the accounting has no record of it."""
        cancelled_s = self.jobs[parent].cancelled_s
        return (
            cancelled_s is not None
            and cancelled_s <= start_s + 1
            and not any(other.ran for other in rows.get(parent, ()))
        )

    def _check_resources(self, expected: Expected, row: Row) -> None:
        spec, job_id = expected.spec, expected.job_id
        if row.gpus == 0 and self._is_without_gpus(expected, row):
            self.known.append(f"Slurm, just started and without Headway, gave {job_id} no GPU")
        elif row.gpus not in expected.gpus:
            self.broken(RealPromise.ITS_RESOURCES, job_id, f"not one of {sorted(expected.gpus)} GPUs: {row}")
        if spec.gpus_in_all is None and not expected.resized and len(row.nodes) != spec.nodes:
            self.broken(RealPromise.ITS_RESOURCES, job_id, f"not {spec.nodes} nodes: {row}")
        if spec.feature and set(row.nodes) != {FAST_NODE}:
            self.broken(RealPromise.ITS_RESOURCES, job_id, f"not on a node with the feature {spec.feature}: {row}")

    def _is_without_gpus(self, expected: Expected, row: Row) -> bool:
        """Return whether Slurm alone started the job before nodes had registered with a new slurmctld: it was not Headway's, or it
        had been released before slurmctld was stopped."""
        assert row.start_s is not None
        alone = not expected.spec.managed or any(abs(row.start_s - time_s) < ALONE_S for time_s in self.alone_s)
        released_s = max(
            (at for at in self.releases.get(row.job_id, ()) if at <= row.start_s + 1), default=float("inf")
        )
        return any(
            disturbance.node is None
            and disturbance.touches(row)
            and (alone or released_s < disturbance.from_s + SECOND_S)
            for disturbance in self.disturbances
        )

    def _check_steps(self, expected: Expected, lines: Sequence[Line]) -> None:
        """Check that each run begins at the newest step that was saved, and makes every step from there on.

        A job that is killed right after a save has not written the line about it: it may begin at the last step that it made.
        """
        saved = step = 0
        for line in lines:
            if line.what == "saved":
                saved = line.step
            if line.what == "start" and line.step not in {saved, max(saved, step)}:
                self.broken(RealPromise.NO_STEP_LOST, expected.job_id, f"{saved} steps were saved before {line}")
            if line.what == "step" and line.step != step + 1:
                self.broken(RealPromise.NO_STEP_LOST, expected.job_id, f"step {step} was the last before {line}")
            if line.what in {"start", "step"}:
                step = line.step

    def _check_end(self, expected: Expected, rows: Sequence[Row], lines: Sequence[Line]) -> None:
        spec, job_id = expected.spec, expected.job_id
        ends = [row for row in rows if row.ended]
        if not ends:
            return  # NOT_HELD_FOR_EVER says so
        allowed = {"FAILED"} if spec.exit_code else {"COMPLETED"}
        if expected.never:
            allowed = {"CANCELLED"}
        if expected.cancelled_s is not None or expected.maybe_cancelled:
            allowed |= {"CANCELLED"}
        if expected.killed_s or any(self._disturbs(row) for row in rows):
            allowed |= {"NODE_FAIL", "FAILED"}
            if not spec.requeue and not lines:  # slurmd could not launch it, and Slurm may not start it again
                allowed |= {"CANCELLED"}
        if ends[-1].state not in allowed:
            self.broken(RealPromise.RIGHT_END, job_id, f"not {' or '.join(sorted(allowed))}: {ends[-1]}")
        finished = [line for line in lines if line.what == "end"]
        if ends[-1].state == "COMPLETED" and [line.step for line in finished[-1:]] != [spec.steps]:
            self.broken(RealPromise.RIGHT_END, job_id, f"its log lacks the end: {lines[-3:]}")
        if len(finished) > 1 and not expected.requeues_s and not expected.killed_s and not self.disturbances:
            self.broken(RealPromise.RUNS_ONCE, job_id, f"it has ended {len(finished)} times: {finished}")

    def _disturbs(self, row: Row) -> bool:
        return row.ran and any(disturbance.touches(row) for disturbance in self.disturbances)
