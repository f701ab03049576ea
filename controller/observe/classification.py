"""Classification of the jobs of one snapshot: which wait, run or start, and are seen by policies; which Slurm is to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from controller.base.apart import LEFT_OUT, apart, culprits
from controller.observe.array_throttle import beyond_throttle, rooms
from controller.observe.dependency import Dependencies, Met
from controller.observe.job_row import JobRow, Nodes, Occupied
from controller.observe.not_understood import not_understood
from controller.observe.role import WAITING, Obstacle, Role, Standing, in_scope, standing
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, NodeShare, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.ledger import Ledger

# Read from ten thousand rows in every cycle, without a step in Python for each.
_key, _job, _id = map(attrgetter, ("key", "job", "key.job_id"))


class Classification:
    """Classification of all jobs of one snapshot. Bound: the jobs of that snapshot; lives for one cycle."""

    def __init__(
        self,
        snapshot: SlurmSnapshot,
        ledger: Ledger,
        partitions: frozenset[str],
        nodes: Nodes,
        requeue_delay_s: float,
    ) -> None:
        self._snapshot = snapshot
        self._requeue_delay_s = requeue_delay_s
        self._ledger = ledger
        self._partitions = partitions
        self._nodes = nodes
        self._dependencies: Dependencies | None = None
        self.standings: dict[JobKey, Standing] = {}
        self.jobs: dict[JobKey, SlurmJob] = {}
        self.to_adopt: list[JobKey] = []
        self.to_yield: dict[JobKey, str] = {}
        self.only_slurm: dict[JobKey, str] = {}
        self.visible: list[JobRow] = []
        """Rows that policies see."""
        self.occupied: dict[int, Occupied] = {}
        """Placements of the visible rows that have one, by identity of the row."""
        self.foreign: list[NodeShare] = []
        self.twice_marked: list[JobKey] = []

    def classify_waiting(self, rows: list[JobRow]) -> None:
        """Classify rows that wait, while no job is refused, faster than `classify` does: nearly all of a long queue."""
        self.visible += rows
        jobs = dict(zip(map(_key, rows), map(_job, rows), strict=True))
        self.jobs.update(jobs)
        self.standings.update(dict.fromkeys(jobs, WAITING))

    def classify(self, job: SlurmJob, row: JobRow) -> None:
        """Classify one job."""
        found = row.standing
        if found is None or (self._ledger.refusals and job.key in self._ledger.refusals):
            found = standing(job, self._partitions, self._ledger, self._snapshot.time_s, self._requeue_delay_s)
        role = found.role
        if role is Role.WAITING:
            if job.dependency or row.unsupported or row.problem:
                found = self._doubtful(job, row)
            if found.role is Role.WAITING:
                self.visible.append(row)
        elif role is Role.RUNNING or role is Role.STARTING:
            if row.unsupported and job.phase is Phase.RUNNING:
                self.only_slurm[job.key] = row.unsupported
            occupied = row.occupied if role is Role.RUNNING and row.occupied else self._pinned(job)
            if occupied:
                self.visible.append(row)
                self.occupied[id(row)] = occupied
        elif role is Role.FOREIGN:
            if job.phase.occupies_nodes:
                self.foreign.extend(job.allocated)
            return
        elif role is Role.ADOPT:
            self.to_adopt.append(job.key)
        elif role is Role.STRAY:
            found = self._yielded(job, found.why)
        elif role is Role.INELIGIBLE and len(job.marks) > 1:
            self.twice_marked.append(job.key)
        self.jobs[job.key] = job
        self.standings[job.key] = found

    def _doubtful(self, job: SlurmJob, row: JobRow) -> Standing:
        """Return the standing of a held job of ours that may be impossible to place."""
        if job.dependency:
            if self._dependencies is None:
                self._dependencies = Dependencies(self._snapshot.jobs, self._snapshot.time_s)
            met = self._dependencies.of(job)
            if met is Met.NOT_YET:
                return Standing(Role.INELIGIBLE, f"waits for other jobs ({job.dependency})", Obstacle.DEPENDENCY)
            if met is Met.NEVER:
                mend = "change it with `scontrol update`, or cancel the job"
                return self._yielded(job, f"has a dependency that can no longer be met ({job.dependency}); {mend}")
        # Slurm checks a request at the submission, but does not check that of a held job: a job that can never start is left to
        # Slurm.
        why = row.unsupported or row.problem
        return self._yielded(job, why) if why else Standing(Role.WAITING)

    def leave_to_slurm(self, row: JobRow, why: str) -> None:
        """Give a job to Slurm that only Headway holds; of one that has nodes, count what it occupies."""
        job = row.job
        if job.phase.occupies_nodes:
            with apart("nodes of jobs", job.key.job_id):
                self.foreign.extend(job.allocated)
        elif job.phase is Phase.PENDING and self._may_be_ours(job):
            self.jobs[job.key] = job
            ours = job.held and HOLD_MARK in job.marks and USER_HOLD_MARK not in job.marks
            self.standings[job.key] = self._yielded(job, why) if ours else Standing(Role.YIELDED, why)

    def leave_out_culprits(
        self, columns: Callable[[Sequence[JobRow], Sequence[NodeShare]], object], error: Exception
    ) -> bool:
        """Leave the jobs to Slurm, and drop the shares of nodes, that lead to the error. Returns whether there were some."""
        jobs = culprits("columns of jobs", self.visible, lambda rows: columns(rows, ()), _id)
        for row in jobs:
            self.leave_to_slurm(row, not_understood(error))
        left_out = {row.key for row in jobs}
        self.visible = [row for row in self.visible if row.key not in left_out]
        shares = culprits("nodes of jobs", self.foreign, lambda some: columns((), some), lambda share: share.node)
        self.foreign = [share for share in self.foreign if not any(share is one for one in shares)]
        return bool(jobs or shares)

    def _may_be_ours(self, job: SlurmJob) -> bool:
        try:
            return in_scope(job, self._partitions)
        except Exception as error:  # noqa: BLE001 - one job must not stop all others
            LEFT_OUT.note("scope of jobs", job.key.job_id, error)
            return HOLD_MARK in job.marks

    def keep_to_throttles(self) -> dict[int, int]:
        """Hide waiting tasks of arrays beyond their throttles. Returns how many further tasks each such array may start."""
        room_of = rooms(self._snapshot.jobs, self.standings)
        if room_of:
            waiting = [row for row in self.visible if self.standings[row.key].role is Role.WAITING]
            beyond = beyond_throttle(waiting, room_of)
            self.standings.update(beyond)
            self.visible = [row for row in self.visible if row.key not in beyond]
        return room_of

    def _yielded(self, job: SlurmJob, why: str) -> Standing:
        self.to_yield[job.key] = why
        return Standing(Role.INELIGIBLE, why)

    def _pinned(self, job: SlurmJob) -> Occupied:
        """Return the nodes on which a starting job was pinned."""
        pin = self._ledger.pins.get(job.key)
        if pin is None:
            return ()
        index = self._nodes.index
        masks = pin.gpu_masks or (0,) * len(pin.nodes)
        entries = zip(pin.nodes, pin.gpus, masks, strict=True)
        return tuple(sorted((index[node], gpus, mask) for node, gpus, mask in entries if node in index))
