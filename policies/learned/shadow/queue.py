"""The shadow's queue: first come, first served, where a job that does not fit is skipped, as `fifo-skip`.

The shadow begins with the jobs and placements of the first state that it sees. From then on it has the same arrivals as the
cluster, and nodes of its own. Jobs start there by consolidated best fit in the size that they request, and are never stopped. A job
runs for as long as it is expected to, or, once it has ended on the cluster, for as long as it did run there. So the shadow has the
contention that the cluster has.
"""

from __future__ import annotations

import copy
import heapq
import math
from dataclasses import dataclass
from typing import Self

from policies.learned.shadow.nodes import Place, ShadowNodes
from policies.model import ClusterState, FloatColumn
from policies.placement.requests import Parts, Request, Requests

_LEAST_KEPT = 100
"""Number of kinds, and of ends that are no longer true, from which on they are forgotten."""


@dataclass(slots=True)
class ShadowJob:
    """A job of the shadow. Times in seconds; `end_s` is infinite, and `place` empty, while it waits."""

    key: int
    """Class of equal requests."""
    parts: Parts
    nodes: int
    gpus: int
    expected_s: float
    """Run time, as far as it is known, with the GPUs that the job requests."""
    served_s: float = 0.0
    """Run time before `start_s`."""
    start_s: float = math.inf
    end_s: float = math.inf
    place: Place = ()


class ShadowQueue:
    """Jobs of the shadow at `time_s`. Invariant: no waiting job fits on the nodes after `advance`."""

    def __init__(self, state: ClusterState, expected_s: FloatColumn) -> None:
        """Begin as the cluster is; `expected_s` are the run times that its jobs are expected to have."""
        self.time_s = state.time_s
        self.nodes = ShadowNodes(state)
        self._jobs: dict[str, ShadowJob] = {}
        """Bound: the jobs that have not ended in the shadow; it is dropped, and begins anew, with other nodes."""
        self._waiting: dict[str, None] = {}
        """Bound: `_jobs`."""
        self._ends: list[tuple[float, str]] = []
        """Heap of the ends of running jobs, with some that are no longer true. Bound: `_LEAST_KEPT`, or twice `_jobs`."""
        self._kinds: dict[tuple[object, ...], int] = {}
        """Numbers of the kinds of jobs. Bound: `_LEAST_KEPT`, or twice the waiting jobs."""
        self._next_kind = 0
        requests, jobs, offsets = Requests(state), state.jobs, state.jobs.placement_offset.tolist()
        for row, name in enumerate(jobs.ids):
            job = self._job(requests, row, float(expected_s[row]), _served_s(state, row))
            self._jobs[name] = job
            first, last = offsets[row], offsets[row + 1]
            if first == last:
                self._waiting[name] = None
                continue
            nodes, gpus = jobs.placement_node[first:last].tolist(), jobs.placement_gpus[first:last].tolist()
            job.place = tuple(zip(nodes, gpus, strict=True))
            self.nodes.take(job.place)
            self._run(name, job)
        self._fill()

    def __len__(self) -> int:
        return len(self._jobs)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.nodes = self.nodes.fork()
        twin._jobs = {name: copy.copy(job) for name, job in self._jobs.items()}
        twin._waiting, twin._ends, twin._kinds = self._waiting.copy(), self._ends[:], self._kinds.copy()
        return twin

    def advance(self, time_s: float, arrivals: list[tuple[float, str, ShadowJob]]) -> float:
        """Go on to that time with these jobs, by rising time of submission; return the seconds that jobs were there, summed up."""
        total_s, place = 0.0, 0
        while True:
            arrival_s = max(arrivals[place][0], self.time_s) if place < len(arrivals) else math.inf
            at_s = min(self._next_end_s(), arrival_s)
            then_s = min(at_s, time_s)
            total_s += len(self._jobs) * (then_s - self.time_s)
            self.time_s = then_s
            if at_s > time_s:
                self._forget_kinds()
                return total_s
            ended = self._end(at_s)
            before = place
            while place < len(arrivals) and arrivals[place][0] <= at_s:
                _, name, job = arrivals[place]
                self._jobs[name] = job
                self._waiting[name] = None
                place += 1
            if ended or place > before:
                self._fill()

    def _forget_kinds(self) -> None:
        """Forget the kinds of past jobs: nodes that come and go, and reservations, make new ones over months."""
        if len(self._kinds) > max(_LEAST_KEPT, 2 * len(self._waiting)):
            waiting = (self._jobs[name] for name in self._waiting)
            self._kinds = {(job.parts, job.nodes): job.key for job in waiting}

    def arriving(self, requests: Requests, row: int, expected_s: float) -> ShadowJob:
        """Return the job of that row, which has just been submitted."""
        return self._job(requests, row, expected_s, 0.0)

    def expect(self, name: str, expected_s: float) -> None:
        """Let that job run for so long; ignored where the shadow has finished it. One that has run for longer ends at once."""
        job = self._jobs.get(name)
        if job is None:
            return
        if not job.parts and not job.place:  # it never fitted while it was known: nodes were down when it came
            self.drop(name)
            return
        job.expected_s = expected_s
        if job.place:
            self._run(name, job)

    def drop(self, name: str) -> None:
        """Take out a job that was cancelled before it ran."""
        job = self._jobs.pop(name, None)
        if job is not None and not job.place:
            del self._waiting[name]
        elif job is not None:
            self.nodes.give_back(job.place)

    def resize(self, state: ClusterState) -> None:
        """Take over which nodes and GPUs are available now, and with them where waiting jobs may run, and in which parts."""
        if not self.nodes.resize(state):
            return
        requests = Requests(state)
        for row, name in enumerate(state.jobs.ids):
            if name in self._waiting:
                job, request = self._jobs[name], requests.of(row)
                job.key, job.parts, job.nodes = self._key(request), request.parts, request.nodes
        self._fill()

    def hold(self, name: str) -> bool:
        """Let that job run until it is known for how long it does; return False where the shadow has finished it."""
        job = self._jobs.get(name)
        if job is not None and job.expected_s < math.inf:
            self.expect(name, math.inf)
        return job is not None

    def _job(self, requests: Requests, row: int, expected_s: float, served_s: float) -> ShadowJob:
        request = requests.of(row)
        key = self._key(request)
        return ShadowJob(key, request.parts, request.nodes, request.gpus, max(expected_s, served_s), served_s)

    def _key(self, request: Request) -> int:
        kind = request.parts, request.nodes
        if kind not in self._kinds:
            self._kinds[kind] = self._next_kind
            self._next_kind += 1
        return self._kinds[kind]

    def _run(self, name: str, job: ShadowJob) -> None:
        """Let a job that has GPUs run to its end from now on, or go on to another end."""
        if job.start_s == math.inf:
            job.start_s = self.time_s
        job.end_s = max(job.start_s + job.expected_s - job.served_s, self.time_s)
        heapq.heappush(self._ends, (job.end_s, name))
        if len(self._ends) > max(_LEAST_KEPT, 2 * len(self._jobs)):
            # Ends of jobs that ran for longer than expected lie at the bottom of the heap, where nothing drops them.
            self._ends = [(end_s, name) for end_s, name in set(self._ends) if self._is_true(end_s, name)]
            heapq.heapify(self._ends)

    def _is_true(self, end_s: float, name: str) -> bool:
        job = self._jobs.get(name)
        return job is not None and job.end_s == end_s

    def _next_end_s(self) -> float:
        """Return the next end of a job; entries of the heap that are no longer true are dropped."""
        while self._ends:
            end_s, name = self._ends[0]
            if self._is_true(end_s, name):
                return end_s
            heapq.heappop(self._ends)
        return math.inf

    def _end(self, time_s: float) -> bool:
        """End all jobs whose end is at that time; return whether there was one."""
        ended = False
        while self._next_end_s() <= time_s:
            _, name = heapq.heappop(self._ends)
            self.nodes.give_back(self._jobs.pop(name).place)
            ended = True
        return ended

    def _fill(self) -> None:
        """Start waiting jobs that fit, in order of submission."""
        failed: set[int] = set()
        for name in list(self._waiting):
            job = self._jobs[name]
            if job.key in failed:
                continue
            place = self.nodes.place(job.parts, job.nodes)
            if place is None:
                failed.add(job.key)
                if len(failed) == len(self._kinds):
                    break
                continue
            del self._waiting[name]
            job.place = place
            self._run(name, job)


def _served_s(state: ClusterState, row: int) -> float:
    """Return the job's run time so far, as if it had run with the GPUs that it requests."""
    return float(state.jobs.attained_gpu_s[row]) / max(int(state.jobs.num_gpus[row]), 1)
