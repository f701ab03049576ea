"""Progress of running jobs: the simulator's engine on the cluster's clock.

Slurm knows nodes by name, jobs by id and time in seconds since the Unix epoch; the engine numbers both, and counts whole
nanoseconds from the cluster's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.slurm.embedded.ctld.job import Job
from simulator.engine.queueless_jobs import MOST_WORK_NS, QueuelessJobs
from simulator.kernel.constants import NEVER
from simulator.slowdown.api import SlowdownModel

_NS_PER_S = 1_000_000_000
_LEAST_S = 1.0
"""Work that is left at least, however much was saved: a run that continues has to end by itself."""


class JobProgress:
    """Work of the jobs that run or are suspended. A job is here from `begin` to `end`, or until `take_done` has returned it.

    Invariant: nothing depends on how often it is read. A float resolves the clock to some 200 ns: work that ends in between
    is reported at the nearest instant that a float can show.
    """

    def __init__(self, gpus: Mapping[str, int], models: Sequence[SlowdownModel], start_s: float) -> None:
        """Start without jobs. `gpus` are the GPUs of each node that has some, in the order in which the models know the nodes."""
        self._nodes = {name: number for number, name in enumerate(gpus)}
        self._work = QueuelessJobs(list(gpus.values()), models)
        self._start_s = start_s
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._done: list[str] = []
        """Jobs whose work is done and has not been reported yet."""

    def next_done_s(self) -> float:
        """Return the time at which the next job finishes if nothing else happens before; infinite when none will."""
        if self._done:
            return self._start_s
        next_ns = self._work.next_finish_ns()
        return float("inf") if next_ns == NEVER else self._start_s + next_ns / _NS_PER_S

    def take_done(self) -> list[str]:
        """Return the ids of the jobs that finish next, all at one time, and remove these jobs."""
        if not self._done:
            self._advance(self._work.next_finish_ns())
        done, self._done = self._done, []
        return done

    def begin(self, job: Job, now_s: float) -> None:
        """Begin the job's work where its newest checkpoint ends, on the job's allocated GPUs."""
        self._advance(self._ns(now_s))
        submission = job.submission
        gpus_of = {self._nodes[share.node]: share.gpus for share in job.allocated if share.gpus}
        left_s = max(submission.duration_s - job.saved_work_s, min(submission.duration_s, _LEAST_S))
        number = self._work.start(
            round(min(left_s, MOST_WORK_NS / _NS_PER_S) * _NS_PER_S),
            list(gpus_of),
            list(gpus_of.values()),
            model=submission.model,
            batch_size=-1 if submission.batch_size is None else submission.batch_size,
            gpu_masks={self._nodes[share.node]: share.gpu_mask for share in job.allocated if share.gpus},
        )
        self._numbers[job.job_id] = number
        self._ids[number] = job.job_id

    def pause(self, job: Job, now_s: float) -> None:
        """Pause the job; it keeps its GPUs."""
        self._advance(self._ns(now_s))
        if job.job_id in self._numbers:  # else it is done in this very nanosecond
            self._work.pause(self._numbers[job.job_id])

    def resume(self, job: Job, now_s: float) -> None:
        """Continue the job where it was paused."""
        self._advance(self._ns(now_s))
        self._work.resume(self._numbers[job.job_id])

    def end(self, job: Job, now_s: float) -> None:
        """End the job's work, finished or not; nothing happens if the job is unknown."""
        self._advance(self._ns(now_s))
        number = self._numbers.pop(job.job_id, None)
        if number is not None:
            self._work.stop(number)
            del self._ids[number]
        elif job.job_id in self._done:
            self._done.remove(job.job_id)

    def _advance(self, now_ns: int) -> None:
        for number, _ in self._work.advance_to(now_ns):
            job_id = self._ids.pop(number)
            del self._numbers[job_id]
            self._done.append(job_id)

    def _ns(self, time_s: float) -> int:
        return round((time_s - self._start_s) * _NS_PER_S)
