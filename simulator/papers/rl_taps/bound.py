"""Lower bounds of the mean slowdown of a sequence over all assignments, which may stop and move jobs for nothing."""

from __future__ import annotations

import numpy as np

from simulator.cluster.topology.gpu_links import GpuLinks
from simulator.papers.rl_taps.jobs import Floats, Jobs
from simulator.papers.rl_taps.options import FULL, RlTapsOptions

_MIXES = np.linspace(0.0, 1.0, 11)


def speeds_alone(jobs: Jobs, links: GpuLinks, options: RlTapsOptions) -> Floats:
    """Return the speed of each job alone on 1, 2, ... GPUs in the fewest racks, in cells a step (jobs, GPUs)."""
    gpus = np.arange(1, links.num_gpus + 1)
    racks = -(-gpus // int(np.bincount(links.rack).max()))
    ring = np.where(gpus > 1, np.sqrt(gpus), 0.0) * (1.0 + options.profiles.ring.per_rack * (racks - 1))
    found: Floats = options.efficiency * gpus / (1.0 + jobs.reduction[:, None] * ring)
    return found


def mean_slowdown_bound(jobs: Jobs, links: GpuLinks, options: RlTapsOptions) -> float:
    """Return the larger of two bounds.

    **Alone**: no job takes fewer steps than at its highest speed alone. **Together**: the mean slowdown is the sum over steps of
    1 / length of all jobs that are not done, over the number of jobs. In each step the running jobs share all GPUs, and all slots
    (without preemption: as many jobs as GPUs). So for any mix x the shares x / slots + (1 - x) n / GPUs of jobs on n GPUs add up to
    no more than 1; a job needs at least its cells times the least share for its speed; and by step t the jobs that are done have
    used no more than t. Most is done if jobs with the most 1 / length for their need come first, one of them in part. The best of
    several mixes counts.
    """
    cells = jobs.length * jobs.gpus
    speeds = speeds_alone(jobs, links, options)
    arrived = jobs.arrival < options.max_steps
    steps = np.minimum(np.ceil(cells / speeds.max(1) - 1e-9), options.max_steps - jobs.arrival)
    alone = float((steps / jobs.length)[arrived].mean())
    at_once = options.slots if options.preemption == FULL else links.num_gpus
    gpus = np.arange(1, links.num_gpus + 1) / links.num_gpus
    needs = [cells * ((mix / at_once + (1.0 - mix) * gpus) / speeds).min(1) for mix in _MIXES]
    return max(alone, *(_undone(jobs, need, options.max_steps) / int(arrived.sum()) for need in needs))


def _undone(jobs: Jobs, need: Floats, steps: int) -> float:
    """Return the least sum over steps of 1 / length of the jobs that have arrived and are not done, with a supply of 1 a step."""
    order = np.argsort(jobs.length * need, kind="stable")
    arrival, worth, need = jobs.arrival[order], 1.0 / jobs.length[order], need[order]
    total = 0.0
    for step in range(steps):
        there = arrival <= step
        size = need[there]
        done = np.clip((step - np.cumsum(size) + size) / size, 0.0, 1.0)
        total += float((worth[there] * (1.0 - done)).sum())
    return total
