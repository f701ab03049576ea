"""From Slurm's snapshot to the cluster state that a policy reads.

`Observer.observe` is a pure function of the snapshot and the ledger. The observer only keeps results for jobs that have not
changed, so that ten thousand waiting jobs cost milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import cast

import numpy as np
import numpy.typing as npt
import structlog

from controller.base.apart import apart, each_or
from controller.base.errors import HeadwayError
from controller.observe.classification import Classification
from controller.observe.columns import STATIC, Rows, build_state
from controller.observe.eligible_nodes import EligibleNodes
from controller.observe.gpu_layouts import with_gpu_layouts
from controller.observe.job_row import NO_NODES, JobRow, Nodes, Occupied, job_row
from controller.observe.knowledge import Knowledge
from controller.observe.model_profiles import ModelColumns
from controller.observe.not_understood import bare, not_understood, plain
from controller.observe.role import Role, Standing
from controller.observe.slurm_order import with_slurm_order
from controller.profiles.current import NO_CONTENTION, Contention, ContentionByRun, run_of
from controller.profiles.windows import RunKey
from controller.slurm.model.cluster import SlurmNode, SlurmSnapshot
from controller.slurm.model.job import JobKey, NodeShare, Phase, SlurmJob
from controller.state.ledger import Ledger, Served
from controller.state.preemption import RelocationConstraint
from policies.model import ClusterState

log = structlog.get_logger(__name__)

_RESERVATIONS_HOLD_S = 30.0
"""Time for which node sets are kept while there are reservations, seconds, because reservations begin and end by themselves."""

_MOST_USERS = 1000
"""Maximum number of user names to keep. They are sent to the policy with every snapshot; beyond this, those of past jobs are
dropped."""
_MOST_QOS = 1000
"""The same of names of QOS."""
_MOST_DEMANDS = 10_000
"""Number of different demands for nodes, of past jobs too, from which on they are forgotten, if they are twice as many as jobs."""
_MOST_NODE_SETS = 1000
"""Maximum number of node sets to keep. Sets of past jobs are sent to the policy with every snapshot; beyond this, all are
computed again."""

_Columns = tuple[ClusterState, npt.NDArray[np.void]]
"""The state without the columns that may be missing, and the values of its rows that do not depend on others."""

StepsDone = Callable[[SlurmJob], int | None]
"""Returns the optimizer steps that a job has done, all runs together; None: not known."""

# Read from ten thousand rows in every cycle, without a step in Python for each.
_job, _order, _static, _waits = map(attrgetter, ("job", "order", "static", "waits"))
_id = attrgetter("key.job_id")


@dataclass(frozen=True)
class Observation:
    """One snapshot with roles and columns. `rows[i]` is the job behind row i of `state.jobs`."""

    snapshot: SlurmSnapshot
    state: ClusterState
    rows: tuple[SlurmJob, ...]
    standings: Mapping[JobKey, Standing]
    jobs: Mapping[JobKey, SlurmJob]
    """All jobs that Headway schedules, ended ones included."""
    to_adopt: tuple[JobKey, ...] = ()
    """Pending jobs of ours that Slurm may start at any moment: they are held before anything else is done."""
    to_yield: Mapping[JobKey, str] = field(default_factory=dict)
    """Waiting jobs that only Slurm can place, and the reasons."""
    only_slurm: Mapping[JobKey, str] = field(default_factory=dict)
    """Running jobs that only Slurm can place, and the reasons: they may be stopped, but neither moved nor resized."""
    leaf_switches: int | None = None
    """Leaf switches, or blocks, of the cluster; 0: Slurm has no topology; None: not known."""
    twice_marked: tuple[JobKey, ...] = ()
    """Held jobs with both marks, their user's and ours: their hand-over was interrupted."""
    measured: ContentionByRun = field(default_factory=dict)
    """Contention of running jobs."""
    preemptible: frozenset[RunKey] = frozenset()
    """Runs that policies may stop, or that are being stopped already."""
    node_sets_without_constraint: Mapping[int, int] = field(default_factory=dict)
    """Rows of waiting jobs with a relocation constraint, and the node sets that they would have without it."""
    array_room: Mapping[int, int] = field(default_factory=dict)
    """Numbers of tasks that arrays with a throttle may still start, by the number of the array."""
    by_partition: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Rows of waiting jobs of several partitions: the partitions in which each can start, with the rows of their node sets."""

    def partitions_of(self, row: int) -> tuple[tuple[str, int], ...]:
        """Return the partitions in which the waiting job of that row can start, each with the row of its node set."""
        return self.by_partition.get(row) or ((self.rows[row].partition, int(self.state.jobs.node_set[row])),)

    def with_role(self, role: Role) -> list[SlurmJob]:
        """Return the jobs in that role."""
        return [self.jobs[key] for key, found in self.standings.items() if found.role is role]


def left_to_slurm(observation: Observation, job: SlurmJob) -> str:
    """Return why a running job is neither moved nor resized, in words that continue "it "; empty if only its nodes decide."""
    why = observation.only_slurm.get(job.key)
    return f"can only be stopped: after that Slurm places it by its user's own request, as it {why}" if why else ""


class Observer:
    """Turns snapshots into observations. Invariant: equal arguments give equal observations, except for `sequence` and for the
    knowledge of models and racks.
    """

    def __init__(self, knowledge: Knowledge | None = None) -> None:
        self._knowledge = Knowledge() if knowledge is None else knowledge
        self._rows: dict[int, JobRow] = {}
        """Rows by identity of the SlurmJob: clients return the same object while nothing has changed.

        A row keeps its job alive, so that no other job gets that identity while the row is here.
        Bound: the jobs of one snapshot.
        """
        self._constraints: dict[JobKey, RelocationConstraint] = {}
        """Relocation constraints with which the rows were computed. Bound: the ledger's constraints."""
        self._unfit: dict[JobKey, frozenset[str]] = {}
        """Nodes that jobs avoid because Slurm did not start them there, as in the rows.
        Bound: the ledger's refusals."""
        self._not_understood: set[JobKey] = set()
        """Jobs whose classification has failed, and is in the log. Bound: the jobs of one snapshot."""
        self._nodes: Nodes | None = None
        """The nodes, with the users and QOS seen so far. Bound: `_MOST_USERS` and `_MOST_QOS`, or twice those of one snapshot."""
        self._signature: object = None
        self._sequence = 0
        self._model_columns = ModelColumns()

    def observe(
        self,
        snapshot: SlurmSnapshot,
        ledger: Ledger,
        partitions: frozenset[str],
        measured: ContentionByRun = NO_CONTENTION,
        preemptible: frozenset[RunKey] = frozenset(),
        steps_done: StepsDone | None = None,
    ) -> Observation:
        """Classify every job, and compute the columns that policies read.

        `preemptible`: runs that policies may stop. `steps_done`: None if no steps are known.
        """
        self._sequence += 1
        managed = sorted((node for node in snapshot.nodes if node.partitions & partitions), key=_sleeps)
        nodes = self._nodes_of(snapshot, managed, partitions)
        self._drop_changed_rows(ledger, snapshot.time_s)
        classified = Classification(snapshot, ledger, partitions, nodes, self._knowledge.requeue_delay_s)
        seen = self._rows_of(snapshot, ledger, nodes, partitions)
        for alike, run in groupby(seen, _never if ledger.refusals else _waits):
            if alike:
                classified.classify_waiting(list(run))
            else:
                for row in run:
                    self._classify(classified, row)
        if self._not_understood:
            self._not_understood &= {job.key for job in snapshot.jobs}
        classified.visible.sort(key=_order)
        array_room: dict[int, int] = {}
        with apart("throttles of arrays"):  # Slurm keeps to them in any case
            array_room = classified.keep_to_throttles()
        return Observation(
            snapshot=snapshot,
            state=self._state(snapshot, managed, nodes, classified, ledger, measured, preemptible, steps_done),
            rows=tuple(map(_job, classified.visible)),
            standings=classified.standings,
            jobs=classified.jobs,
            to_adopt=tuple(classified.to_adopt),
            to_yield=classified.to_yield,
            only_slurm=classified.only_slurm,
            leaf_switches=nodes.leaf_switches,
            twice_marked=tuple(classified.twice_marked),
            measured=measured,
            preemptible=preemptible,
            array_room=array_room,
            node_sets_without_constraint=_without_constraints(classified.visible, ledger),
            by_partition={place: row.partitions for place, row in enumerate(classified.visible) if row.partitions},
        )

    def _rows_of(
        self, snapshot: SlurmSnapshot, ledger: Ledger, nodes: Nodes, partitions: frozenset[str]
    ) -> list[JobRow]:
        """Return the row of each job; only rows of jobs that have changed are computed."""
        rows = self._rows
        known = list(map(rows.get, map(id, snapshot.jobs)))
        for number in [number for number, row in enumerate(known) if row is None]:
            job = snapshot.jobs[number]
            unfit = self._unfit.get(job.key, NO_NODES)
            known[number] = rows[id(job)] = self._row(job, ledger, nodes, partitions, unfit)
        if len(rows) > 2 * len(snapshot.jobs):
            self._rows = {id(job): rows[id(job)] for job in snapshot.jobs}
        return cast("list[JobRow]", known)

    def _row(
        self, job: SlurmJob, ledger: Ledger, nodes: Nodes, partitions: frozenset[str], unfit: frozenset[str]
    ) -> JobRow:
        """Return the row of a job. One that leads to an error of ours is left to Slurm: it must not stop all others."""
        try:
            return job_row(job, ledger, nodes, partitions, self._constraints, unfit)
        except Exception as error:
            log.exception("job_not_understood", job=job.key.job_id, effect="Slurm places it")
            why = not_understood(error)
            with apart("rows of jobs", job.key.job_id):
                return replace(_plain_row(job, nodes, partitions), unsupported=why, waits=False)
            # Not even a value of Slurm's own can be used.
            return replace(job_row(bare(job), Ledger(), nodes, partitions, {}), unsupported=why, waits=False)

    def _classify(self, classified: Classification, row: JobRow) -> None:
        """Classify a job. One that leads to an error of ours is left to Slurm, or runs on: it must not stop all others."""
        try:
            classified.classify(row.job, row)
        except Exception as error:
            if row.key not in self._not_understood:
                log.exception("job_not_understood", job=row.key.job_id, effect="Slurm places it")
                self._not_understood.add(row.key)
            classified.leave_to_slurm(row, not_understood(error))

    def _drop_changed_rows(self, ledger: Ledger, now_s: float) -> None:
        """Drop the rows of jobs whose constraint, or whose nodes to avoid, have changed."""
        unfit = {key: away for key, one in ledger.refusals.items() if (away := one.avoided_nodes(now_s))}
        constraints = ledger.constraints()
        if constraints == self._constraints and unfit == self._unfit:
            return
        changed = _differing(self._constraints, constraints) | _differing(self._unfit, unfit)
        self._rows = {number: row for number, row in self._rows.items() if row.key not in changed}
        self._constraints, self._unfit = constraints, unfit

    def _nodes_of(self, snapshot: SlurmSnapshot, managed: list[SlurmNode], partitions: frozenset[str]) -> Nodes:
        """Return the same nodes while nodes, partitions, reservations and switches have not changed; else new ones, and drop all
        rows."""
        order = tuple(node.name for node in managed)
        eligible = EligibleNodes(snapshot, order)
        era = snapshot.time_s // _RESERVATIONS_HOLD_S if snapshot.reservations else 0
        sizes = [(node.gpus, node.cpus, node.memory_mib) for node in managed]
        leaves = self._knowledge.leaf_switches
        signature = (eligible.signature, order, tuple(sizes), era, partitions, leaves)
        if self._nodes is None or signature != self._signature or self._crowded(self._nodes, snapshot):
            index = {node.name: row for row, node in enumerate(managed)}
            gpus, cpus, memory_mib = np.array(sizes, dtype=np.int64).reshape(-1, 3).T
            self._nodes = Nodes(index, eligible, gpus, cpus, memory_mib, leaves)
            self._signature = signature
            self._rows = {}
        return self._nodes

    def _crowded(self, nodes: Nodes, snapshot: SlurmSnapshot) -> bool:
        """Return whether too many users, QOS, demands or node sets of past jobs are kept."""
        demands = nodes.eligible.kept
        if len(nodes.eligible.masks) > _MOST_NODE_SETS or (demands > max(_MOST_DEMANDS, 2 * len(snapshot.jobs))):
            return True
        if len(nodes.qos) > _MOST_QOS and len(nodes.qos) > 2 * len({job.qos for job in snapshot.jobs}):
            return True
        return len(nodes.users) > _MOST_USERS and len(nodes.users) > 2 * len({job.user for job in snapshot.jobs})

    def _state(
        self,
        snapshot: SlurmSnapshot,
        managed: list[SlurmNode],
        nodes: Nodes,
        classified: Classification,
        ledger: Ledger,
        measured: ContentionByRun,
        preemptible: frozenset[RunKey],
        steps_done: StepsDone | None,
    ) -> ClusterState:
        """Return the columns. A job whose values lead to an error of ours is left to Slurm, or is not among them."""

        def columns(visible: Sequence[JobRow], foreign: Sequence[NodeShare]) -> _Columns:
            return self._columns(
                snapshot,
                managed,
                nodes,
                classified.occupied,
                visible,
                foreign,
                ledger,
                measured,
                preemptible,
                steps_done,
            )

        try:
            state, statics = columns(classified.visible, classified.foreign)
        except HeadwayError:
            raise
        except Exception as error:  # a few jobs must not stop all others
            if not classified.leave_out_culprits(columns, error):
                raise
            state, statics = columns(classified.visible, classified.foreign)
        visible = classified.visible
        foreign = [(nodes.index[share.node], share) for share in classified.foreign if share.node in nodes.index]
        # Policies decide without the columns that cannot be made.
        with apart("GPU layouts"):
            state = with_gpu_layouts(state, self._knowledge.gpu_layouts, foreign)
        with apart("Slurm's order"):
            state = with_slurm_order(state, visible, statics, snapshot, self._knowledge.priorities)
        with apart("profiles of models"):
            return self._model_columns.added(state, visible, snapshot.jobs, measured, self._knowledge.models)
        return state

    def _columns(
        self,
        snapshot: SlurmSnapshot,
        managed: list[SlurmNode],
        nodes: Nodes,
        occupied_of: Mapping[int, Occupied],
        visible: Sequence[JobRow],
        foreign: Sequence[NodeShare],
        ledger: Ledger,
        measured: ContentionByRun,
        preemptible: frozenset[RunKey],
        steps_done: StepsDone | None,
    ) -> _Columns:
        """Return the columns of these jobs, and of these shares of nodes that other jobs have."""
        statics = np.frombuffer(b"".join(map(_static, visible)), dtype=STATIC)
        occupy = np.fromiter(map(occupied_of.__contains__, map(id, visible)), np.bool_, len(visible))
        occupants = np.flatnonzero(occupy)
        occupying = [visible[place] for place in occupants.tolist()]
        rows = Rows(
            ids=[row.key.job_id for row in visible],
            statics=statics,
            occupants=occupants,
            occupied=[occupied_of[id(row)] for row in occupying],
            estimates=each_or("estimates of run times", visible, lambda row: _estimate(row, ledger), None, _id)
            if ledger.estimates
            else None,
            served=_earlier_runs(visible, ledger, snapshot.time_s) if ledger.served else None,
            users=tuple(nodes.users),
            qos_names=tuple(nodes.qos),
            measured=each_or("measured jobs", occupying, lambda row: _contention(row.job, measured), None, _id)
            if measured
            else (),
            preemptible=each_or("preemptible jobs", occupying, lambda row: run_of(row.job) in preemptible, False, _id)
            if preemptible
            else (),
            steps_done=_steps_done(visible, np.flatnonzero(~np.isnan(statics["steps"])).tolist(), steps_done),
        )
        state = build_state(
            sequence=self._sequence,
            time_s=snapshot.time_s,
            nodes=managed,
            foreign=[(nodes.index[share.node], share) for share in foreign if share.node in nodes.index],
            rows=rows,
            node_sets=nodes.eligible.masks,
            racks=self._knowledge.racks,
        )
        return state, statics


def _differing(before: Mapping[JobKey, object], now: Mapping[JobKey, object]) -> set[JobKey]:
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}


def _plain_row(job: SlurmJob, nodes: Nodes, partitions: frozenset[str]) -> JobRow:
    """Return the row of a job with nothing of what its user has written."""
    return replace(job_row(plain(job), Ledger(), nodes, partitions, {}), job=job)


def _without_constraints(visible: list[JobRow], ledger: Ledger) -> dict[int, int]:
    if not ledger.relocations and not ledger.kept_off:
        return {}
    return {place: row.anywhere for place, row in enumerate(visible) if row.anywhere is not None}


def _earlier_runs(visible: Sequence[JobRow], ledger: Ledger, now_s: float) -> list[Served | None]:
    """Return the usage of each job in its runs before the one that Slurm shows; None for jobs without such runs."""
    served = ledger.served

    def earlier(row: JobRow) -> Served | None:
        return None if (found := served.get(row.key)) is None else _earlier(row.job, found, now_s)

    return each_or("usage of earlier runs", visible, earlier, None, _id)


def _earlier(job: SlurmJob, served: Served, now_s: float) -> Served:
    """Return the usage of the job in its runs before the one that Slurm shows. `served`: that of all runs that have ended.

    A requeued job that is COMPLETING has the count of its next run already, and its last run counts as served. If that run counted
    twice, the job would seem to be nearly done, and policies would stop others in its place. With the
    journal of an earlier version, one that ends without a requeue is not told apart: for some seconds its earlier runs and the last
    one count only as the longer of the two.
    """
    if job.phase is not Phase.COMPLETING or job.start_time_s is None:
        return served
    if served.last_start_s is not None and served.last_start_s != job.start_time_s:
        return served  # the last run is not among them
    run_s = max(now_s - job.start_time_s, 0.0)
    gpu_s = run_s * sum(share.gpus for share in job.allocated)
    return replace(served, service_s=max(served.service_s - run_s, 0.0), gpu_s=max(served.gpu_s - gpu_s, 0.0))


def _steps_done(visible: Sequence[JobRow], places: list[int], steps_done: StepsDone | None) -> dict[int, int]:
    """Return the steps done by these jobs, by place, as far as they are known."""
    if steps_done is None:
        return {}
    found = each_or("steps of jobs", [visible[place] for place in places], lambda row: steps_done(row.job), None, _id)
    return {place: steps for place, steps in zip(places, found, strict=True) if steps is not None}


def _sleeps(node: SlurmNode) -> bool:
    """Return the key by which nodes that power saving has off come last: of equal nodes, policies take the first ones."""
    return node.is_asleep


def _never(_row: JobRow) -> bool:
    return False


def _contention(job: SlurmJob, measured: ContentionByRun) -> Contention | None:
    run = run_of(job)
    return None if run is None else measured.get(run)


def _estimate(row: JobRow, ledger: Ledger) -> tuple[float, float] | None:
    """Return the run time from past jobs, at most that at which Slurm ends the present run, and its spread."""
    found = ledger.estimates.get(row.owner_and_name)
    if found is None:
        return None
    limit_s, before = row.job.time_limit_s, ledger.served.get(row.key)
    if limit_s is None:
        return found.mean_s, found.spread_s
    return min(found.mean_s, limit_s + (0.0 if before is None else before.service_s)), found.spread_s
