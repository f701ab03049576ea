"""The forecast of one queue: quantiles of the wait of every waiting job, before any correction by past errors."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from policies.model import FloatColumn
from policies.rule import Discipline, Order, Rule
from simulator.errors import RuleTooSlowError
from simulator.forecast.arrivals import Submissions
from simulator.forecast.calibration import LEVELS
from simulator.forecast.changeover import Changeover
from simulator.forecast.durations import Durations
from simulator.forecast.queue import PastJobs, Queue
from simulator.forecast.sample_starts import UNTIL_S, StartSampler

MOST_SAMPLES = 40
FEWEST_SAMPLES = 6
_GRACE = 1.5
"""CPU time that the first instants of all samples may take beyond that of the effort, as a multiple of it."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is computed: the most samples, and CPU seconds for all of them, of which each of FEWEST_SAMPLES has its share."""

    samples: int = MOST_SAMPLES
    cpu_s: float = float("inf")


_NO_CHANGEOVER = Changeover()


def forecast(
    queue: Queue,
    past: PastJobs,
    rule: Rule,
    *,
    round_s: float = 0.0,
    seed: int = 0,
    effort: Effort | None = None,
    changeover: Changeover = _NO_CHANGEOVER,
) -> FloatColumn:
    """Return the quantiles `LEVELS` of the seconds until each waiting job starts: a row for each, in the order of the queue.

    Equal arguments give equal results, unless the CPU time ends the samples. A start that no sample reaches is at `UNTIL_S`.
    In a sample a job keeps its GPUs for the time of a changeover after its end, so that the next one starts that much later.
    Raises RuleTooSlowError if the CPU time does not suffice for the fewest samples by a rule that stops jobs.
    """
    effort = effort or Effort()
    begin_s = time.process_time()
    rng = np.random.default_rng((seed, 0x7374617274))
    waiting = int((~queue.jobs.running).sum())
    if waiting == 0:
        return np.zeros((0, len(LEVELS)))
    durations = Durations(past)
    mixture = durations.mixture(queue.jobs)
    most = 0 if _in_order(rule) else 2 * waiting + 500
    submissions = Submissions(past, durations, queue.now_s, most)
    sampler = StartSampler(queue, rule, round_s)
    grace_s = _GRACE * effort.cpu_s / FEWEST_SAMPLES
    starts = []
    for sample in range(effort.samples):
        left_s = begin_s + effort.cpu_s - time.process_time()
        if sample >= FEWEST_SAMPLES and left_s <= 0:
            break
        share_s = max(left_s, 0.0) / max(FEWEST_SAMPLES - sample, 1)
        work_s = np.where(queue.jobs.ending, queue.jobs.service_s, durations.draw(queue.jobs, 1, rng, mixture)[0])
        occupied_s = work_s + changeover.draw(len(queue.jobs), rng)
        coming = submissions.draw(rng)
        coming = replace(coming, duration_s=coming.duration_s + changeover.draw(len(coming.jobs), rng))
        try:
            found_s = sampler.run(occupied_s, coming, share_s, grace_s)
        except RuleTooSlowError:
            if sample < FEWEST_SAMPLES:
                raise
            break
        starts.append(np.maximum(found_s, changeover.draw_start(waiting, rng)))
    found = np.minimum(np.array(starts), UNTIL_S)
    return np.asarray(np.quantile(found, LEVELS, axis=0, method="linear").T)


def _in_order(rule: Rule) -> bool:
    """Return whether no later job can delay an earlier one."""
    return rule.discipline == Discipline.STRICT and rule.order in (Order.ARRIVAL, Order.SLURM)
