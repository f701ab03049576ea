"""Speed by number of workers, fitted from profiles: the resource-speed model of Optimus.

Source: Peng et al., "Optimus", EuroSys 2018, section 3.2: a synchronous step with w workers, p servers and M examples takes

    T(w, p) = t0 M/w + t1 + t2 w/p + t3 w + t4 p,

whose coefficients, none negative, are fitted by least squares to a few speeds measured at different sizes. With one server a
worker and as many examples for each worker at every size that is T(w) = a + b w, and throughput w / (a + b w). The general law is
in `simulator.slowdown.links.parameter_server`. With two unknowns the fit has a closed form, here for all jobs of a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from policies.model import ClusterState, FloatColumn, IntColumn
from policies.placement.locality_tiers import ACROSS_RACKS, SAME_NODE, SAME_RACK, SAME_SOCKET

Samples = list[tuple[int, int]]
"""(workers, tier)."""


Speeds = Mapping[int, float]
"""Observed speeds of a job by number of workers; 1 is its speed at the size that it asks for, which estimates refer to."""


def fitted(state: ClusterState) -> tuple[FloatColumn, FloatColumn]:
    """Return a and b of each job, in steps of one worker alone.

    The measurement of a profile at a tier stands for the fewest and the most workers that need that tier here. Tiers that
    a model was not measured at follow from its bytes and its computing time, at the pace of the other models there. Jobs
    without a profile count as the median of the others; where no job has one, twice the workers are twice as fast.
    """
    a, b, _ = _by_profiles(state)
    return a, b


def remaining_at_one(state: ClusterState, remaining_s: FloatColumn, observed: Mapping[int, Speeds]) -> FloatColumn:
    """Return for each job the seconds g such that with w workers g/w + a constant remain.

    `remaining_s` refers to the job alone, at the size that it asks for. Jobs of rows in `observed` are fitted anew,
    to profiles and to those speeds; where there are no profiles, to them and to the size that the job asks for.
    """
    a, b, points = _by_profiles(state)
    asked = state.jobs.num_gpus
    per_step = remaining_s * asked / (a + b * asked)
    if observed:
        a = a.copy()
        _fit_anew(a, b, asked, points, observed)
    gains: FloatColumn = per_step * a
    return gains


_Points = tuple[FloatColumn, FloatColumn]
"""Numbers of workers, and the steps of each job with so many."""


def _by_profiles(state: ClusterState) -> tuple[FloatColumn, FloatColumn, _Points | None]:
    """Return a and b of each job, and the points that they are fitted to; None where there are none."""
    jobs, profiles = len(state.jobs), state.profiles
    samples = tuple(_samples(state))
    if profiles is None or not profiles.models or not samples:
        return np.ones(jobs), np.zeros(jobs), None
    numbers, steps = _of_models(
        samples, _Bytes(profiles.locality), _Bytes(profiles.bytes_per_step), _Bytes(profiles.compute_s)
    )
    of_job = profiles.of_job
    workers = np.array([workers for workers, _ in samples], dtype=np.float64)
    return numbers[0][of_job], numbers[1][of_job], (workers, steps[of_job])


def _fit_anew(
    a: FloatColumn, b: FloatColumn, asked: IntColumn, points: _Points | None, observed: Mapping[int, Speeds]
) -> None:
    """Replace the a of jobs that were observed at several sizes; a and b were fitted to profiles before."""
    rows = np.array(list(observed), dtype=np.int64)
    unit = (a[rows] + b[rows] * asked[rows]) / asked[rows]
    known = len(points[0]) if points is not None else 0
    width = known + 1 + max(map(len, observed.values()))
    workers, steps = np.ones((len(rows), width)), np.full((len(rows), width), np.nan)
    if points is not None:
        workers[:, :known], steps[:, :known] = points[0], points[1][rows]
    for place, (row, speeds) in enumerate(observed.items()):
        seen = speeds if points is not None else {int(asked[row]): 1.0, **speeds}
        for at, (size, speed) in enumerate(seen.items(), known):
            workers[place, at], steps[place, at] = size, size / speed * unit[place]
    there = ~np.isnan(steps)
    several = np.where(there, workers, -np.inf).max(axis=1) > np.where(there, workers, np.inf).min(axis=1)
    a[rows[several]] = least_squares(workers[several], steps[several])[0]


class _Bytes:
    """A column as a dictionary key: columns with equal entries are equal."""

    def __init__(self, column: FloatColumn) -> None:
        self.column = column
        self._key = column.shape, column.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=16)
def _of_models(
    samples: tuple[tuple[int, int], ...], locality: _Bytes, bytes_per_step: _Bytes, compute_s: _Bytes
) -> tuple[npt.NDArray[np.float64], FloatColumn]:
    """Return a and b of each model, and last of jobs without one; and the steps that these are fitted to.

    This is computed once for all states with these profiles and nodes.
    """
    steps = _steps(locality.column, bytes_per_step.column, compute_s.column)[:, [tier for _, tier in samples]]
    known = ~np.isnan(steps).any(axis=1)
    numbers = np.repeat(np.array([[1.0], [0.0]]), len(steps) + 1, axis=1)
    if known.any():
        found = least_squares(np.array([workers for workers, _ in samples], dtype=np.float64), steps[known])
        numbers[:] = np.median(found, axis=1)[:, None]
        numbers[:, :-1][:, known] = found
    workers = np.array([workers for workers, _ in samples], dtype=np.float64)
    believed = numbers[0][:, None] + numbers[1][:, None] * workers
    believed[:-1][known] = steps[known]
    return numbers, believed


def least_squares(workers: FloatColumn, steps: FloatColumn) -> npt.NDArray[np.float64]:
    """Return a and b, none negative, with the least squares of the relative errors of a + b w; a pair for each row of `steps`.

    Steps that are NaN do not count. `workers` are those of all rows, or of each. With two unknowns, the best of those on the
    border has one of them at 0.
    """
    one = np.where(np.isnan(steps), 0.0, 1 / steps)
    rise = workers * one
    squares, mixed, rises = (one * one).sum(axis=1), (one * rise).sum(axis=1), (rise * rise).sum(axis=1)
    ones, risen = one.sum(axis=1), rise.sum(axis=1)
    determinant = squares * rises - mixed * mixed
    solvable = determinant > 1e-12 * squares * rises
    divisor = np.where(solvable, determinant, 1.0)
    a, b = (rises * ones - mixed * risen) / divisor, (squares * risen - mixed * ones) / divisor
    inside = solvable & (a >= 0) & (b >= 0)
    # The sum of squares with one unknown is the number of samples less these.
    flat = ones * ones / squares >= risen * risen / rises
    return np.stack(
        (
            np.where(inside, a, np.where(flat, ones / squares, 0.0)),
            np.where(inside, b, np.where(flat, 0.0, risen / rises)),
        )
    )


def _samples(state: ClusterState) -> Samples:
    nodes = state.nodes
    gpus = nodes.gpus[nodes.available]
    if not gpus.sum():
        return []
    in_node, in_all = int(gpus.max()), int(gpus.sum())
    in_rack = int(np.bincount(nodes.rack[nodes.available], weights=gpus).max())
    ranges = (
        (SAME_SOCKET, 1, 1),
        (SAME_NODE, 2, in_node),
        (SAME_RACK, in_node + 1, in_rack),
        (ACROSS_RACKS, in_rack + 1, in_all),
    )
    return [(workers, tier) for tier, low, high in ranges if low <= high for workers in sorted({low, high})]


def _steps(locality: FloatColumn, bytes_per_step: FloatColumn, compute_s: FloatColumn) -> FloatColumn:
    """Return the time of a step of each model at each tier, in steps at the first; NaN where nothing is known."""
    measured = 1 / locality
    size = (bytes_per_step / compute_s)[:, None]
    both = ~np.isnan(measured) & ~np.isnan(size)
    weights = np.where(both, size, 0.0)
    waited = (weights * np.where(both, measured - 1, 0.0)).sum(axis=0)
    total = (weights * weights).sum(axis=0)
    pace = np.divide(waited, total, out=np.full(len(total), np.nan), where=total > 0)
    steps: FloatColumn = np.where(np.isnan(measured), 1 + pace * size, measured)
    return steps
