"""The baselines of SCHED2 and our controls, without a `ClusterState`: 50 to 70 times faster than their policies.

They make the decisions of the policies `sched2-sif` and so on, whose modules say what the paper leaves open; a test compares both.
They stay because the experiment and the sweeps over loads run them thousands of times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from policies.heuristics.baselines.sched2 import MAX_DELAYS
from policies.heuristics.baselines.sched2_controls import PATIENCE, SAME_SPEED
from policies.learned.sched2.state.placements import fewest_nodes
from simulator.cluster.cluster import Cluster
from simulator.engine.queue import first_waiting
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.papers.sched2.packing import pack
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.traces.trace import Trace

Where = tuple[list[int], list[int]]
Key = Callable[[ActiveJob], int]
_ALL_JOBS = 1 << 62

KEYS: dict[str, Key] = {
    "sif": lambda job: job.work,
    "dsif": lambda job: job.work,
    "lrf": lambda job: job.gpus,
    "spf": lambda job: job.work * job.gpus,
    "spf-local": lambda job: job.work * job.gpus,
    "delay": lambda job: job.work,
}
"""Sort key of the waiting jobs for each baseline, smallest first; the other baselines do not sort by a key."""
BASELINES = ("sif", "dsif", "saf", "lrf", "spf", "fifo")
CONTROLS = ("spf-local", "delay")


@dataclass
class Baseline:
    """One run of one baseline. Invariant: `delays[j]` is the number of instants at which job j was delayed."""

    name: str
    trace: Trace
    cluster: Cluster
    slowdown: Sequence[SlowdownModel]
    window: int = 0
    """Number of jobs considered, from the front of the queue; 0: all. FIFO does not use it."""
    record: bool = False
    patience: float = PATIENCE
    """Longest wait of a job under `delay`, as a multiple of the time that the slower placement would cost it."""
    delays: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.name not in (known := (*BASELINES, *CONTROLS)):
            raise SettingError(f"there is no baseline {self.name!r}; give one of {', '.join(known)}")
        settings = Settings(record=self.record)
        models = [model.fork() for model in self.slowdown]
        self.simulation = Simulation(self.trace, self.cluster, None, settings, models)
        self._alone = Composite([model.fork() for model in self.slowdown])

    def run(self) -> Simulation:
        """Run the whole trace; return its simulation."""
        simulation, loop = self.simulation, self.simulation.loop
        decide = {"fifo": self._in_order, "saf": self._by_actual_time}.get(self.name, self._by_key)
        while simulation.advance():
            if loop.num_waiting and loop.pool.total:
                decide(loop)
            simulation.settle()
        return simulation

    def _in_order(self, loop: Loop) -> None:
        for job in first_waiting(loop, loop.pool.total):
            where = pack(loop.pool, job)
            if where is None:
                return
            _start(loop, job, where)

    def _by_key(self, loop: Loop) -> None:
        key = KEYS[self.name]
        waiting = first_waiting(loop, _ALL_JOBS)
        considered = self.window or len(waiting)
        heap = [(key(job), job.index, job) for job in waiting[:considered]]
        heapq.heapify(heap)
        behind = iter(waiting[considered:])
        while heap and loop.pool.total:
            _, _, job = heapq.heappop(heap)
            where = pack(loop.pool, job)
            if where is None or self._defers(job, where):
                continue
            _start(loop, job, where)
            more = next(behind, None)
            if more is not None:
                heapq.heappush(heap, (key(more), more.index, more))

    def _defers(self, job: ActiveJob, where: Where) -> bool:
        """Return whether a job that could start there waits instead."""
        match self.name:
            case "dsif":
                return len(where[0]) > fewest_nodes(self.cluster.gpus, job.gpus) and self._delays(job)
            case "spf-local":
                return self._speed_at(job, where) < SAME_SPEED
            case "delay":
                speed = self._speed_at(job, where)
                lost = job.work * (1.0 / speed - 1.0)
                return speed < SAME_SPEED and self.simulation.loop.now - job.submit < self.patience * lost
        return False

    def _delays(self, job: ActiveJob) -> bool:
        delays = self.delays.get(job.index, 0)
        if delays >= MAX_DELAYS:
            return False
        self.delays[job.index] = delays + 1
        return True

    def _by_actual_time(self, loop: Loop) -> None:
        waiting = first_waiting(loop, _ALL_JOBS)
        considered = self.window or len(waiting)
        open_jobs, behind = waiting[:considered], iter(waiting[considered:])
        while open_jobs:
            places: dict[int, Where | None] = {}
            speeds: dict[tuple[str, int, int], float] = {}
            best, least = None, float("inf")
            for job in open_jobs:
                if job.gpus > loop.pool.total:
                    continue
                actual = job.work / self._speed(job, loop, places, speeds)
                if actual < least:
                    best, least = job, actual
            if best is None:
                return
            where = places[best.gpus]
            assert where is not None
            _start(loop, best, where)
            # A job that does not fit now fits no more at this instant, but keeps its place among those considered.
            open_jobs = [job for job in open_jobs if job is not best and job.gpus <= loop.pool.total]
            open_jobs += [more] if (more := next(behind, None)) is not None else []

    def _speed(
        self,
        job: ActiveJob,
        loop: Loop,
        places: dict[int, Where | None],
        speeds: dict[tuple[str, int, int], float],
    ) -> float:
        """Return the job's speed where it would be placed now, without other jobs; computed once for equal jobs."""
        batch_size = int(self.trace.batch_size[job.index])
        kind = self.trace.model[job.index], batch_size, job.gpus
        speed = speeds.get(kind)
        if speed is None:
            if job.gpus not in places:
                places[job.gpus] = pack(loop.pool, job)
            where = places[job.gpus]
            assert where is not None
            speed = speeds[kind] = self._speed_at(job, where)
        return speed

    def _speed_at(self, job: ActiveJob, where: Where) -> float:
        """Return the job's speed at that placement without other jobs, as a share of its ideal speed."""
        batch = batch_per_gpu(int(self.trace.batch_size[job.index]), job.gpus)
        model = self.trace.model[job.index]
        self._alone.enter(Resident(job.index, model, batch, job.gpus, *where))
        speed = self._alone.speed(job.index)
        self._alone.leave(job.index)
        return speed


def _start(loop: Loop, job: ActiveJob, where: Where) -> None:
    loop.dequeue(job)
    loop.start_on(job, *where)
