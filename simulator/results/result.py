"""The result of a run: one row for each job of the trace, and the assumptions of the run.

A `Result` is plain data: it is sent between processes, and `results.metrics` computes every figure from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np

from policies.model import BoolColumn, IntColumn
from simulator.engine.simulation import Simulation
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog

NOT_YET = -1
_LOGGED = {
    **{name: f"{name}_ns" for name in ("first_start", "finish", "service", "wait", "overhead", "lost")},
    "attained": "attained_gpu_ns",
    **{name: name for name in ("stops", "moves", "resizes", "failures")},
}
"""Columns of the kernel's log, and the field of a result that each is."""
_GIVEN = ("submit_ns", "num_gpus", "duration_ns")
"""Columns that are the trace's."""


@dataclass(frozen=True, eq=False, repr=False)
class Spans:
    """Every run of every job, in order of their ends; times in ns.

    Run k had `counts[i]` GPUs of node `nodes[i]` for i from `offset[k]` to `offset[k + 1]` - 1.
    """

    index: IntColumn
    """Row of the trace."""
    start: IntColumn
    end: IntColumn
    nodes: IntColumn
    counts: IntColumn
    offset: IntColumn

    def __len__(self) -> int:
        return len(self.index)

    def busy(self) -> tuple[IntColumn, IntColumn]:
        """Return the instants at which the number of GPUs in use changes, and the number from each of them on."""
        occupied = np.add.reduceat(self.counts, self.offset[:-1]) if len(self) else np.zeros(0, dtype=np.int64)
        time = np.concatenate((self.start, self.end))
        order = np.argsort(time, kind="stable")
        return time[order], np.cumsum(np.concatenate((occupied, -occupied))[order])

    @property
    def run_of_part(self) -> IntColumn:
        """The run of every entry of `nodes`."""
        return np.repeat(np.arange(len(self)), np.diff(self.offset))


@dataclass(frozen=True, eq=False, repr=False)
class Series:
    """State of the cluster from each instant (ns) until the next."""

    time: IntColumn
    free: IntColumn
    """Free GPUs on nodes that are up."""
    waiting: IntColumn
    running: IntColumn
    empty: IntColumn
    """Number of nodes that are up and entirely free."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A run that has ended. Columns have one entry for each job, in the order of the trace; times in ns.

    `finish_ns` is -1 for a job that never finished, `first_start_ns` for one that never started; the other columns then have the
    values at the end of the run.
    """

    policy: str
    trace_name: str
    job_ids: tuple[str, ...]
    model: tuple[str, ...]
    user: tuple[str, ...]
    submit_ns: IntColumn
    num_gpus: IntColumn
    duration_ns: IntColumn
    """Run time alone, at `num_gpus` and the best locality."""
    first_start_ns: IntColumn
    finish_ns: IntColumn
    service_ns: IntColumn
    """Running time, including overhead."""
    wait_ns: IntColumn
    overhead_ns: IntColumn
    """Part of the service that is overhead of stops, moves and resizes."""
    lost_ns: IntColumn
    """Work lost with failed nodes."""
    attained_gpu_ns: IntColumn
    """GPU-ns occupied."""
    stops: IntColumn
    moves: IntColumn
    resizes: IntColumn
    failures: IntColumn
    placement_offset: IntColumn
    placement_node: IntColumn
    placement_gpus: IntColumn
    """The last run of job k has entries `placement_offset[k]` to `placement_offset[k + 1]` - 1."""
    node_gpus: IntColumn
    node_names: tuple[str, ...]
    decisions: int
    guarded: int
    """Number of decisions that a rule made in a learned policy's place."""
    outside: int
    """Number of decisions on states outside of the range of a learned policy's training."""
    guarded_inside: int
    """Number of decisions of `guarded` that are not among those of `outside`."""
    decision_ns: IntColumn
    """Real time of each decision."""
    wall_s: float
    dropped: int = 0
    """Number of jobs that were dropped before the run because they can never fit on the cluster."""
    begin_ns: int = 0
    """First submission on the clock of the trace's file, which files and frames have. The columns count from it."""
    carried: int = 0
    """Number of jobs, the first rows, that waited or ran when the run began. They count as submitted then, with the work that was
    left, and their other columns begin then too."""
    shared_links: BoolColumn | None = None
    """True for jobs that shared a link with another job at some time; None without a model of shared links."""
    series: Series | None = None
    spans: Spans | None = None
    assumptions: Mapping[str, object] = field(default_factory=dict)
    """All assumptions of the run by name, as values that JSON has."""

    @classmethod
    def of(
        cls,
        simulation: Simulation,
        policy: str,
        wall_s: float,
        *,
        dropped: int = 0,
        begin_ns: int = 0,
        assumptions: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the result of a simulation that has ended; for a fork, with the jobs that its original had finished."""
        trace, cluster = simulation.trace, simulation.cluster
        columns = {name: np.full(len(trace), _EMPTY.get(name, 0), dtype=np.int64) for name in _LOGGED}
        placements = _from_logs(simulation.finished, columns, len(trace))
        _from_active(_active(simulation), columns)
        return cls(
            policy=policy,
            trace_name=trace.name,
            job_ids=trace.job_ids,
            model=trace.model,
            user=trace.user,
            submit_ns=trace.submit_ns,
            num_gpus=trace.num_gpus,
            duration_ns=trace.duration_ns,
            **{field: columns[name] for name, field in _LOGGED.items()},
            placement_offset=placements[0],
            placement_node=placements[1],
            placement_gpus=placements[2],
            node_gpus=np.array(cluster.gpus, dtype=np.int64),
            node_names=cluster.names,
            decisions=simulation.decisions,
            guarded=simulation.guarded,
            outside=simulation.outside,
            guarded_inside=simulation.guarded_inside,
            decision_ns=np.array(simulation.decision_ns, dtype=np.int64),
            wall_s=wall_s,
            dropped=dropped,
            begin_ns=begin_ns,
            carried=0,
            shared_links=_shared_links(simulation),
            series=_series(simulation),
            spans=_spans(simulation),
            assumptions=assumptions or {},
        )

    def __len__(self) -> int:
        return len(self.job_ids)

    def take(self, rows: IntColumn) -> Self:
        """Return the result of those rows only, without records; what belongs to the whole run stays."""
        offset = self.placement_offset
        lengths = np.diff(offset)[rows]
        ends = np.cumsum(lengths)
        parts = np.arange(int(lengths.sum())) + np.repeat(offset[:-1][rows] - (ends - lengths), lengths)
        columns = {name: getattr(self, name)[rows] for name in (*_LOGGED.values(), *_GIVEN)}
        places = rows.tolist()
        taken: Self = replace(
            self,
            **columns,
            job_ids=tuple(self.job_ids[row] for row in places),
            model=tuple(self.model[row] for row in places),
            user=tuple(self.user[row] for row in places),
            placement_offset=np.concatenate(([0], ends)),
            placement_node=self.placement_node[parts],
            placement_gpus=self.placement_gpus[parts],
            carried=0,
            shared_links=None if self.shared_links is None else self.shared_links[rows],
            series=None,
            spans=None,
        )
        return taken

    @property
    def submitted(self) -> Self:
        """The result of the jobs that were submitted in the run: without those that were there when it began."""
        return self.take(np.arange(self.carried, len(self))) if self.carried else self

    @property
    def done(self) -> BoolColumn:
        """True for the jobs that finished."""
        return np.not_equal(self.finish_ns, NOT_YET)

    @property
    def jct_ns(self) -> IntColumn:
        """Finish - submit, of the jobs that finished."""
        done = self.done
        return (self.finish_ns - self.submit_ns)[done]

    @property
    def makespan_ns(self) -> int:
        """Last finish - first submit; 0 where nothing finished."""
        return int(self.finish_ns.max() - self.submit_ns.min()) if self.done.any() else 0

    def nodes(self) -> list[str]:
        """Return the last placement of each job, as `0:8+1:4`: 8 GPUs of node 0 and 4 of node 1; empty if it did not finish."""
        parts = list(map("{}:{}".format, self.placement_node.tolist(), self.placement_gpus.tolist()))
        offset = self.placement_offset.tolist()
        return ["+".join(parts[begin:end]) for begin, end in pairwise(offset)]


_EMPTY = {"first_start": NOT_YET, "finish": NOT_YET}


def _from_logs(log: FinishLog, columns: Mapping[str, IntColumn], jobs: int) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Fill the columns of finished jobs; return the placements of their last runs, in the order of the trace."""
    rows: list[IntColumn] = []
    nodes: list[IntColumn] = []
    counts: list[IntColumn] = []
    lengths = np.zeros(jobs, dtype=np.int64)
    end: int | None = None
    while True:
        index = _ints(log.index)[:end]
        for name in _LOGGED:
            columns[name][index] = _ints(getattr(log, name))[:end]
        offset = _ints(log.offset)[: len(index) + 1]
        lengths[index] = np.diff(offset)
        rows.append(np.repeat(index, np.diff(offset)))
        nodes.append(_ints(log.nodes)[: offset[-1]])
        counts.append(_ints(log.counts)[: offset[-1]])
        if log.prefix is None:
            break
        log, end = log.prefix, log.prefix_length
    node = np.concatenate(nodes)
    order = np.lexsort((node, np.concatenate(rows)))
    offset = np.concatenate(([0], np.cumsum(lengths)))
    return offset, node[order], np.concatenate(counts)[order]


def _from_active(jobs: Iterable[ActiveJob], columns: Mapping[str, IntColumn]) -> None:
    """Fill the columns of jobs that did not finish."""
    for job in jobs:
        row = job.index
        columns["first_start"][row] = job.first_start
        columns["overhead"][row] = job.overhead_served
        for name in ("service", "wait", "lost", "attained", "stops", "moves", "resizes", "failures"):
            columns[name][row] = getattr(job, name)


def _active(simulation: Simulation) -> Iterator[ActiveJob]:
    loop = simulation.loop
    yield from loop.running
    for queue in loop.queues:
        yield from queue


def _shared_links(simulation: Simulation) -> BoolColumn | None:
    rows = simulation.sharers
    if rows is None:
        return None
    shared = np.zeros(len(simulation.trace), dtype=np.bool_)
    shared[list(rows)] = True
    return shared


def _series(simulation: Simulation) -> Series | None:
    log = simulation.loop.series
    if log is None:
        return None
    return Series(_ints(log.time), _ints(log.free), _ints(log.waiting), _ints(log.running), _ints(log.empty))


def _spans(simulation: Simulation) -> Spans | None:
    log = simulation.loop.spans
    if log is None:
        return None
    columns = (log.index, log.start, log.end, log.nodes, log.counts, log.offset)
    return Spans(*map(_ints, columns))


def _ints(values: Sequence[int]) -> IntColumn:
    """Return the column of a log as a new array."""
    return np.array(values, dtype=np.int64)
