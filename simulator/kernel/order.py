"""The policy's order over waiting and running jobs."""

from __future__ import annotations

from simulator.kernel.constants import BY_ARRIVAL, BY_GPUS, BY_REMAINING, BY_REMAINING_GPUS
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop


def fronts_of(loop: Loop) -> list[ActiveJob]:
    """Return the first waiting job of each size, in the policy's order."""
    fronts: list[ActiveJob] = []
    for queue in loop.queues:
        if len(queue) > 0:
            fronts.append(queue[0])  # noqa: PERF401 - compiled, a loop is faster
    _sort(fronts)
    return fronts


def keys_fall(order: int) -> int:
    """Return 1 if no running job's key rises in that order, so that no running job falls behind a waiting one."""
    return int(order in (BY_ARRIVAL, BY_GPUS, BY_REMAINING, BY_REMAINING_GPUS))


def set_apart(loop: Loop, first: ActiveJob) -> list[ActiveJob]:
    """Return the running jobs that come after that waiting job and may be stopped, in the policy's order.

    They become the end of `loop.running`, so that the next sort has little to do.
    """
    running = loop.running
    later: list[ActiveJob] = []
    falling = keys_fall(loop.order)
    kept = 0
    for place in range(len(running)):
        job = running[place]
        # The key is that of the last decision: where keys only fall, a job that came first then comes first now.
        if not (job.fixed or (falling and job.before(first))):
            job.settle(loop.now)
            job.key = loop.key_of(job)
            if not job.before(first):
                later.append(job)
                continue
        if kept != place:
            running[kept] = job
            job.running_place = kept
        kept += 1
    _sort(later)
    for place in range(len(later)):
        job = later[place]
        if running[kept + place] is not job:
            running[kept + place] = job
            job.running_place = kept + place
    return later


def _sort(jobs: list[ActiveJob]) -> None:
    """Sort by the policy's order. The jobs are nearly sorted: keys change little between decisions."""
    budget = 8 * len(jobs) + 64
    for place in range(1, len(jobs)):
        job = jobs[place]
        hole = place
        while hole > 0:
            above = jobs[hole - 1]
            if not job.before(above):
                break
            jobs[hole] = above
            hole -= 1
        jobs[hole] = job
        budget -= place - hole
        if budget < 0:
            jobs.sort(key=_order)
            return


def _order(job: ActiveJob) -> tuple[int, int]:
    return job.key, job.index
