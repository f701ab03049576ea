"""Jobs at work on a cluster whose queue is somebody else's: what is left of each, at what speed, and when it is done.

Whoever has a queue and a clock of its own (the controller's embedded Slurm) starts, pauses and stops jobs here and asks
what has become of them. The loop, the jobs and the slowdown models are those of `simulator.engine.simulation.Simulation`: equal
starts give equal finishes, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from simulator.engine.running_speeds import Residents
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.slowdown.api import SlowdownModel

MOST_WORK_NS = 4_000_000_000_000_000_000
"""126 years; more counts as that."""


@dataclass
class _Table:
    """What the models ask of the jobs that are here."""

    model: dict[int, str] = field(default_factory=dict)
    batch_size: dict[int, int] = field(default_factory=dict)


class AtWork:
    """Jobs by number, counted from 0 as they start. Times are ns on the owner's clock, which only goes forward.

    Invariants: every job that was started, and neither stopped nor told as finished, holds its GPUs; of these the paused
    ones make no progress and burden no link. What starts, pauses, resumes and stops at one instant takes effect together, once
    time goes on or somebody asks about it. Nothing is kept of a job that is gone.
    """

    def __init__(self, gpus: Sequence[int], models: Sequence[SlowdownModel] = ()) -> None:
        """Nobody works yet on these nodes of so many GPUs each; without models nobody slows anybody down."""
        pool = NodePool(gpus)
        pool.divide((0, 0), (0, 0))  # one kind of job: nobody asks here where it would fit
        self._loop = Loop(pool, _nobody_arrives, ())
        self._jobs: dict[int, ActiveJob] = {}
        self._places: dict[int, tuple[list[int], list[int]]] = {}
        """Nodes and GPUs on each, of paused jobs too."""
        self._started = 0
        self._table = _Table()
        self._residents = Residents(self._table, list(models)) if models else None
        if self._residents is not None:
            self._loop.track = self._residents.track

    def __len__(self) -> int:
        """How many jobs are here, paused ones included."""
        return len(self._jobs)

    @property
    def now_ns(self) -> int:
        """The instant up to which everything has happened."""
        return self._loop.now

    # What the owner does, at the present instant

    def start(
        self,
        work_ns: int,
        nodes: Sequence[int],
        counts: Sequence[int],
        *,
        model: str = "",
        batch_size: int = -1,
        requested_gpus: int | None = None,
    ) -> int:
        """A job begins on `counts[i]` GPUs of node `nodes[i]`; its number. One without GPUs is slowed down by nobody.

        `work_ns` is its run time alone, at the size that it requested (None: what it gets) with the best locality;
        `batch_size` is over all GPUs, -1 when not known. Raises ValueError for GPUs that are not free.
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
        self._loop.start_on(job, *self._places[number])
        return number

    def stop(self, job: int) -> int:
        """The job goes, and its GPUs are free; the work that it leaves undone, in ns."""
        active = self._jobs[job]
        if active.state == RUNNING:
            self._loop.stop(active)
        else:
            self._hold(job, -1)
        self._loop.dequeue(active)
        self._loop.num_waiting -= 1
        self._forget(job)
        return active.left

    def pause(self, job: int) -> None:
        """The job stands still where it is. Nothing happens if it does already."""
        active = self._jobs[job]
        if active.state == RUNNING:
            self._loop.stop(active)
            self._hold(job, 1)

    def resume(self, job: int) -> None:
        """The job goes on where it stood. Nothing happens if it was not paused."""
        active = self._jobs[job]
        if active.state != RUNNING:
            self._hold(job, -1)
            self._loop.dequeue(active)
            self._loop.start_on(active, *self._places[job])

    # What becomes of the jobs

    def speed(self, job: int) -> float:
        """Seconds of its work that the job does in a second; 0 while it is paused."""
        self._take_effect()
        active = self._jobs[job]
        return active.speed if active.state == RUNNING else 0.0

    def left_ns(self, job: int) -> int:
        """Work that is still to be done."""
        active = self._jobs[job]
        if active.state == RUNNING:
            active.settle(self._loop.now)
        return active.left

    def next_finish_ns(self) -> int:
        """When the next job is done, if nothing else happens before; `constants.NEVER` when none ever is."""
        self._take_effect()
        return self._loop.peek()

    def advance_to(self, now_ns: int) -> list[tuple[int, int]]:
        """Let time pass; which jobs are done by then, each with the instant at which it was. Time that has passed does nothing."""
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
        """The next finish, as far as it matters up to then: at the present instant others may still start and stop."""
        return self.next_finish_ns() if now_ns > self._loop.now else self._loop.peek()

    # Books

    def _take_effect(self) -> None:
        if self._residents is not None:
            self._residents.update(self._loop)

    def _check(self, nodes: Sequence[int], counts: Sequence[int]) -> None:
        free = self._loop.pool.free
        if len(set(nodes)) != len(nodes) or len(counts) != len(nodes):
            raise ValueError(f"nodes {nodes} with {counts} GPUs: name each node once, with its number of GPUs")
        for node, count in zip(nodes, counts, strict=True):
            if not 0 <= node < len(free) or not 1 <= count <= free[node]:
                has = f"{free[node]} free" if 0 <= node < len(free) else "none"
                raise ValueError(f"{count} GPUs of node {node}, which has {has}")

    def _hold(self, job: int, sign: int) -> None:
        """A job that is out of the loop holds its GPUs all the same from now on (1), or no longer (-1)."""
        for node, count in zip(*self._places[job], strict=True):
            self._loop.pool.take(node, sign * count)

    def _forget(self, job: int) -> None:
        del self._jobs[job], self._places[job]
        # The models may still be told that it is gone; they ask nothing of it any more.
        del self._table.model[job], self._table.batch_size[job]


def _nobody_arrives(row: int) -> NoReturn:
    raise AssertionError(f"job {row} arrives, and there is no trace")
