"""Speed of a job over its whole life, from the windows in which agents measured it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median

from controller.profiles.alone_speeds import TimeAndSpeed, speed_around
from controller.profiles.reader import ProfileReader
from controller.profiles.windows import RunShape, Throughput, Trained

_MOST_WINDOWS = 5000
"""Newest windows that are read. The store keeps all of the last six hours, and thins out older ones."""
_OTHERS_ALONE = 200
"""Newest windows of jobs of the same kind, without neighbours, from which the speed alone is taken if the job had none."""
_MOST_BESIDE = 10


@dataclass(frozen=True, slots=True)
class Beside:
    """A job that shared links or hosts with the reported one."""

    raw_id: int
    windows: int
    loss: float
    """Mean share of its speed that the reported job lost in these windows, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Means over the measured windows."""

    steps_per_s: float
    loss: float | None
    """Share of its speed lost to other jobs, from 0 to 1; None: its speed alone is not known."""
    beside: tuple[Beside, ...]
    """The most costly first: by the sum of losses."""
    idle_share: float
    """Share of its GPUs on which it had no process, from 0 to 1."""


def speed_of(store: ProfileReader, raw_id: int, since_s: float) -> Speed | None:
    """Return the speed since then of the job with Slurm's number `raw_id`; None if it was not measured.

    Earlier windows are of another job that had the same number. For a thread beside the loop.
    """
    windows = [window for window in store.throughputs_of(raw_id, _MOST_WINDOWS) if window.start_s >= since_s]
    if not windows:
        return None
    alone = _alone(store, windows)
    losses = [(window, loss) for window in windows if (loss := _loss(window, alone)) is not None]
    beside: dict[int, list[float]] = defaultdict(list)
    for window, loss in losses:
        for other in window.neighbours:
            beside[other.run.job_id].append(loss)
    costly = sorted(beside.items(), key=lambda item: -sum(item[1]))[:_MOST_BESIDE]
    return Speed(
        steps_per_s=fmean(window.steps_per_s for window in windows),
        loss=fmean(loss for _, loss in losses) if losses else None,
        beside=tuple(Beside(job_id, len(found), fmean(found)) for job_id, found in costly),
        idle_share=sum(window.idle_gpus for window in windows) / max(sum(window.shape.gpus for window in windows), 1),
    )


_AloneByKind = dict[tuple[Trained, RunShape], list[TimeAndSpeed]]
"""Times and speeds without neighbours, oldest first; empty: not known."""


def _loss(window: Throughput, alone: _AloneByKind) -> float | None:
    """Return the share of its speed that the job lost in that window; None where its speed alone is not known."""
    if window.alone:
        return 0.0
    known = alone[window.trained, window.shape]
    speed = speed_around(known, window.start_s) if known else 0.0
    return max(1.0 - window.steps_per_s / speed, 0.0) if speed else None


def _alone(store: ProfileReader, windows: list[Throughput]) -> _AloneByKind:
    """Return the speeds without neighbours by kind and shape: the job's own, else the median of others of its kind at any time."""
    found: _AloneByKind = {(window.trained, window.shape): [] for window in windows}
    for window in sorted(windows, key=lambda window: window.start_s):
        if window.alone:
            found[window.trained, window.shape].append((window.start_s, window.steps_per_s))
    for (trained, shape), own in found.items():
        if not own and (others := store.alone(trained, shape, _OTHERS_ALONE)):
            own.append((0.0, median(each for job in others.values() for each in job)))
    return found
