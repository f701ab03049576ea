"""Observed speeds of jobs, from states alone: the decrease of the remaining time over the time of running.

Estimates mean run time at the size that a job asks for. Where what remains of a job (`ClusterState.remaining_s`) gets less by
p seconds while it runs for t, its speed was p / t. This holds where estimates follow a job's progress. Under Slurm, time limits
and mean run times of past jobs do not: the remaining time is counted down by exactly t at every size, and when such an estimate
changes, the difference would look like progress. So there is no observation of a job with an estimate of these sources. In the
simulator these follow the progress too; they are left out there so that a policy decides as it would under Slurm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from policies.model import ClusterState, EstimateSource
from policies.placement.resource_shares import occupied_gpus

MOST_SIZES = 16
"""Sizes remembered of a job, the last ones that it had."""
_FASTER = 1.25
"""A speed above this multiple of proportional scaling is ignored: the estimate has changed."""
_COUNTED_DOWN = 1e-6
_WITHOUT_PROGRESS = (EstimateSource.TIME_LIMIT, EstimateSource.HISTORY)
"""Sources of estimates that do not follow the progress of the job under Slurm."""


@dataclass(slots=True)
class _Run:
    """A job as of the last state."""

    start_s: float = float("nan")
    gpus: int = 0
    service_s: float = 0.0
    remaining_s: float = 0.0
    is_training: bool = False
    """Progress has been observed since the start. Time before that may be start-up, and does not count."""
    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    """For each number of GPUs, the last size last: seconds of running, and of progress. Bound: `MOST_SIZES`."""


class ObservedSpeeds:
    """Remembers the elastic jobs of the last state.

    Invariant: `update` with the same states in the same order gives the same speeds; a state twice in a row gives the same as once.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        """Bound: the elastic jobs of the last state."""

    def update(self, state: ClusterState) -> dict[int, dict[int, float]]:
        """Return the known speeds of jobs of this state, by row and GPUs; 1 is the speed at the size asked for."""
        jobs = state.jobs
        low, high = jobs.sizes
        rows = np.flatnonzero(low < high).tolist()
        if not rows:
            self._runs.clear()
            return {}
        before, self._runs = self._runs, {}
        gpus, asked = occupied_gpus(state).tolist(), jobs.num_gpus.tolist()
        start, service, remaining = jobs.start_time_s.tolist(), jobs.service_s.tolist(), state.remaining_s.tolist()
        follows = ~np.isin(jobs.estimate_source, _WITHOUT_PROGRESS)
        speeds = {}
        for row in rows:
            if not follows[row]:
                continue
            name = jobs.ids[row]
            run = before.get(name)
            if gpus[row] and isfinite(remaining[row]):
                run = run or _Run()
                _note(run, start[row], gpus[row], service[row], remaining[row], gpus[row] / asked[row])
            if run is not None:
                self._runs[name] = run
                if known := _speeds(run, asked[row]):
                    speeds[row] = known
        return speeds


def _note(run: _Run, start_s: float, gpus: int, service_s: float, remaining_s: float, share: float) -> None:
    """Take in how long the job has run altogether, and how much remains."""
    passed, progress = service_s - run.service_s, run.remaining_s - remaining_s
    goes_on = start_s == run.start_s and gpus == run.gpus and passed >= 0
    if goes_on and passed > 0 and remaining_s > 0:
        if run.is_training and 0 < progress <= _FASTER * max(1.0, share) * passed:
            time_s, done_s = run.seen.pop(gpus, (0.0, 0.0))
            run.seen[gpus] = time_s + passed, done_s + progress
            while len(run.seen) > MOST_SIZES:
                del run.seen[next(iter(run.seen))]
        run.is_training = run.is_training or progress > 0
    elif not goes_on:
        run.is_training = False
    run.start_s, run.gpus, run.service_s, run.remaining_s = start_s, gpus, service_s, remaining_s


def _speeds(run: _Run, asked: int) -> dict[int, float]:
    speeds = {gpus: progress / passed for gpus, (passed, progress) in run.seen.items()}
    return {gpus: speed for gpus, speed in speeds.items() if gpus == asked or abs(speed - 1.0) > _COUNTED_DOWN}
