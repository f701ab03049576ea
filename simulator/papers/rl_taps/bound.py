"""Lower bounds of the mean slowdown of a sequence over all assignments, which may stop and move jobs for nothing."""

from __future__ import annotations

import heapq

import numpy as np

from simulator.cluster.topology.gpu_links import GpuLinks
from simulator.papers.rl_taps.jobs import Floats, Jobs
from simulator.papers.rl_taps.options import RlTapsOptions


def fastest(jobs: Jobs, links: GpuLinks, options: RlTapsOptions) -> Floats:
    """Return the highest speed of each job, in cells a step: alone, on the number of GPUs that is best, in the fewest racks."""
    gpus = np.arange(1, links.num_gpus + 1)
    racks = -(-gpus // int(np.bincount(links.rack).max()))
    ring = np.where(gpus > 1, np.sqrt(gpus), 0.0) * (1.0 + options.profiles.ring.per_rack * (racks - 1))
    found: Floats = (options.efficiency * gpus / (1.0 + jobs.reduction[:, None] * ring)).max(1)
    return found


def mean_slowdown_bound(jobs: Jobs, links: GpuLinks, options: RlTapsOptions) -> float:
    """Return the larger of two bounds.

    **Alone**: no job takes fewer steps than at its highest speed alone. **Together**: all speeds add up to no more than that of all
    GPUs without reductions. The mean busy time M_j of a job, the mean of the times at which its work is done, is at most
    C_j - p_j / 2, where p_j is its time at its highest speed; and the sum of M_j / length is least on one machine of that speed, if
    it always runs the job with the most 1 / (length x work) (Goemans et al., "Single machine scheduling with release dates", 2002).
    The second holds only if that machine is done by Tmax; otherwise leaving jobs undone could cost less.
    """
    least = jobs.length * jobs.gpus / fastest(jobs, links, options)
    steps = np.minimum(np.ceil(least - 1e-9), np.maximum(options.max_steps - jobs.arrival, 0))
    alone = float((steps / jobs.length).mean())
    busy, end = _mean_busy_times(jobs, options.efficiency * links.num_gpus)
    if end > options.max_steps:
        return alone
    return max(alone, float(((busy + least / 2 - jobs.arrival) / jobs.length).mean()))


def _mean_busy_times(jobs: Jobs, speed: float) -> tuple[Floats, float]:
    """Return the mean busy time of each job on one machine of that speed, and the time at which all are done."""
    time_of = jobs.length * jobs.gpus / speed
    order = np.argsort(np.argsort(jobs.length * time_of, kind="stable")).tolist()
    left, arrival = time_of.tolist(), jobs.arrival.tolist()
    moments = [0.0] * len(left)
    waiting: list[tuple[int, int]] = []
    now, place = 0.0, 0
    while place < len(left) or waiting:
        if not waiting:
            now = max(now, float(arrival[place]))
        while place < len(left) and arrival[place] <= now:
            heapq.heappush(waiting, (order[place], place))
            place += 1
        job = waiting[0][1]
        until = now + left[job]
        if place < len(left):
            until = min(until, float(arrival[place]))
        moments[job] += (until * until - now * now) / 2
        left[job] -= until - now
        now = until
        if left[job] <= 1e-12:
            heapq.heappop(waiting)
    return np.array(moments) / time_of, now
