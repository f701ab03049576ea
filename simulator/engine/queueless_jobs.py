"""Running jobs without a queue: the remaining work of each, its speed, and when it will finish.

The owner has a queue and a clock of its own (the controller's embedded Slurm does): it starts, pauses and stops jobs here and
reads their state. The loop, the jobs and the slowdown models are those of `simulator.engine.simulation.Simulation`: equal starts
give equal finishes, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

from simulator.engine.gpu_tracker import GpuTracker
from simulator.engine.running_speeds import RunningSpeeds
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.slowdown.api import SlowdownModel

MOST_WORK_NS = 4_000_000_000_000_000_000
"""126 years; longer jobs are cut to it."""


@dataclass
class _Table:
    """The properties of the jobs that slowdown models read."""

    model: dict[int, str] = field(default_factory=dict)
    batch_size: dict[int, int] = field(default_factory=dict)


class QueuelessJobs:
    """Jobs by number, counted from 0 as they start. Times are ns on the owner's clock, which only goes forward.

    Invariants: a job that was started, and was neither stopped nor reported as finished, occupies its GPUs; a paused job makes no
    progress and loads no link. All starts, pauses, resumptions and stops of one instant take effect together, when time advances or
    a speed or a finish is read. Nothing is kept about a job that has left.
    """

    def __init__(self, gpus: Sequence[int], models: Sequence[SlowdownModel] = ()) -> None:
        """Begin without jobs, on nodes with so many GPUs each. Without models, jobs do not slow each other down."""
        pool = NodePool(gpus)
        pool.divide((0, 0), (0, 0))  # one kind of job: the owner chooses the nodes
        self._loop = Loop(pool, _no_arrival, ())
        self._jobs: dict[int, ActiveJob] = {}
        self._places: dict[int, tuple[list[int], list[int]]] = {}
        """Nodes of each job and its GPUs on them, of paused jobs too."""
        self._started = 0
        self._table = _Table()
        self._gpus = GpuTracker(gpus) if any(model.needs_gpus for model in models) else None
        self._masks: dict[int, Mapping[int, int]] = {}
        """Which GPUs each job was given, paused ones too; empty where no model needs it."""
        self._speeds = RunningSpeeds(self._table, list(models), self._gpus) if models else None
        if self._speeds is not None:
            self._loop.track = self._speeds.track

    def __len__(self) -> int:
        """Number of jobs, paused ones included."""
        return len(self._jobs)

    @property
    def now_ns(self) -> int:
        """The present instant: every event up to it has been handled."""
        return self._loop.now

    # Actions of the owner, at the present instant

    def start(
        self,
        work_ns: int,
        nodes: Sequence[int],
        counts: Sequence[int],
        *,
        model: str = "",
        batch_size: int = -1,
        requested_gpus: int | None = None,
        gpu_masks: Mapping[int, int] = MappingProxyType({}),
    ) -> int:
        """Start a job on `counts[i]` GPUs of node `nodes[i]`; return its number. A job without GPUs is never slowed down.

        `work_ns` is its run time alone, at the size that it requested (None: what it gets) with the best locality;
        `batch_size` is over all GPUs, -1 when not known. `gpu_masks` says which GPUs by node (bit k: GPU k; 0: any), for the models
        that need it. Raises ValueError for GPUs that are not free.
        """
        self._check(nodes, counts)
        number, self._started = self._started, self._started + 1
        asked = sum(counts) if requested_gpus is None else requested_gpus
        work = min(max(work_ns, 0), MOST_WORK_NS)
        job = ActiveJob(number, self._loop.now, asked, 0, work, -1, 0, 0)
        self._jobs[number] = job
        self._places[number] = list(nodes), list(counts)
        self._table.model[number], self._table.batch_size[number] = model, batch_size
        self._loop.num_waiting += 1
        if self._gpus is not None:
            self._masks[number] = gpu_masks
        self._enter(job)
        return number

    def stop(self, job: int) -> int:
        """Remove the job and free its GPUs; return its remaining work in ns."""
        active = self._jobs[job]
        if active.state == RUNNING:
            self._loop.stop(active)
        else:
            self._occupy(job, -1)
        self._loop.dequeue(active)
        self._loop.num_waiting -= 1
        self._forget(job)
        return active.left

    def pause(self, job: int) -> None:
        """Pause the job; it keeps its GPUs. Does nothing if it is paused."""
        active = self._jobs[job]
        if active.state == RUNNING:
            self._loop.stop(active)
            self._occupy(job, 1)

    def resume(self, job: int) -> None:
        """Let the job continue on its GPUs. Does nothing if it is not paused."""
        active = self._jobs[job]
        if active.state != RUNNING:
            self._occupy(job, -1)
            self._loop.dequeue(active)
            self._enter(active)

    # State of the jobs

    def speed(self, job: int) -> float:
        """Return the seconds of work that the job does in a second; 0 while it is paused."""
        self._take_effect()
        active = self._jobs[job]
        return active.speed if active.state == RUNNING else 0.0

    def left_ns(self, job: int) -> int:
        """Return the remaining work of the job, in ns."""
        active = self._jobs[job]
        if active.state == RUNNING:
            active.settle(self._loop.now)
        return active.left

    def next_finish_ns(self) -> int:
        """Return when the next job finishes if nothing else happens before; `constants.NEVER` if none does."""
        self._take_effect()
        return self._loop.peek()

    def advance_to(self, now_ns: int) -> list[tuple[int, int]]:
        """Go on to that instant; return the jobs that finished, each with its finish. Does nothing for an instant in the past."""
        done: list[tuple[int, int]] = []
        loop = self._loop
        while self._next_before(now_ns) <= now_ns:
            loop.next_instant()
            log, loop.finished = loop.finished, FinishLog()
            for number, finish_ns in zip(log.index, log.finish, strict=True):
                self._forget(number)
                done.append((number, finish_ns))
        loop.now = max(loop.now, now_ns)
        return done

    def _next_before(self, now_ns: int) -> int:
        """Return the next finish. Speeds are not updated at the present instant: more jobs may start and stop at it."""
        return self.next_finish_ns() if now_ns > self._loop.now else self._loop.peek()

    # Bookkeeping

    def _take_effect(self) -> None:
        if self._speeds is not None:
            self._speeds.update(self._loop)

    def _enter(self, job: ActiveJob) -> None:
        """Let the job run on its GPUs."""
        if self._gpus is not None:
            self._gpus.name(job.index, dict(self._masks[job.index]))
        self._loop.start_on(job, *self._places[job.index])

    def _check(self, nodes: Sequence[int], counts: Sequence[int]) -> None:
        free = self._loop.pool.free
        if len(set(nodes)) != len(nodes) or len(counts) != len(nodes):
            raise ValueError(f"nodes {nodes} with {counts} GPUs: name each node once, with its number of GPUs")
        for node, count in zip(nodes, counts, strict=True):
            if not 0 <= node < len(free) or not 1 <= count <= free[node]:
                has = f"{free[node]} free" if 0 <= node < len(free) else "none"
                raise ValueError(f"{count} GPUs of node {node}, which has {has}")

    def _occupy(self, job: int, sign: int) -> None:
        """Occupy the GPUs of a job that is not in the loop from now on (1), or free them (-1)."""
        for node, count in zip(*self._places[job], strict=True):
            self._loop.pool.take(node, sign * count)

    def _forget(self, job: int) -> None:
        del self._jobs[job], self._places[job]
        self._masks.pop(job, None)
        # The models may be notified later that it left; they read nothing about it any more.
        del self._table.model[job], self._table.batch_size[job]


def _no_arrival(row: int) -> NoReturn:
    raise AssertionError(f"job {row} arrives, and there is no trace")
