"""One forecast of the whole cluster, from a request to its answer. Pure but for the tracks, which it changes."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from controller.forecast.past_runs import PastRun
from controller.forecast.pools import Known, Pool, past_request, pools_of
from controller.forecast.request import Answer, Request, Waits
from controller.forecast.tracks import Tracks
from policies.model import FloatColumn, IntColumn
from simulator.errors import RuleTooSlowError
from simulator.forecast.calibration import Calibration, Track, horizon_class
from simulator.forecast.changeover import Changeover
from simulator.forecast.forecast import Effort, forecast
from simulator.forecast.queue import PastJobs
from simulator.forecast.sample_starts import UNTIL_S
from simulator.forecast.stand_in import DecidingRule

_ROOM_S = 1.0
"""A start so close to the horizon of the samples counts as beyond it, seconds."""


def answer(request: Request, runs: Sequence[PastRun], tracks: Tracks) -> Answer:
    """Return the ranges of all waiting jobs. `tracks` gets what became of earlier ranges, and follows these."""
    state, keys = request.state, request.keys
    waiting = {keys[row] for row in state.pending.tolist()}
    started = {run.key: run.start_s for run in runs if run.start_s is not None}
    started |= {keys[row]: float(state.jobs.start_time_s[row]) for row in state.running.tolist()}
    tracks.settle(
        {key: start_s for key, start_s in started.items() if key not in waiting}, waiting.__contains__, state.time_s
    )
    calibration = Calibration(tracks.all(), state.time_s)
    deciding = DecidingRule.named(request.policy)
    begin_s = time.process_time()
    try:
        forecasts = _forecasts(request, runs, deciding)
    except RuleTooSlowError:
        deciding = DecidingRule()
        left_s = max(request.cpu_s - (time.process_time() - begin_s), 0.0)
        forecasts = _forecasts(replace(request, cpu_s=left_s), runs, deciding)
    found: list[Waits] = []
    for rows, raw_s in forecasts:
        shown_s = calibration.correct(raw_s)
        found += _waits(rows, raw_s, shown_s, calibration)
        for row, raw, shown in zip(rows.tolist(), raw_s, shown_s, strict=True):
            if raw[1] < UNTIL_S - _ROOM_S:
                key = keys[row]
                horizon = int(horizon_class(raw[1:2])[0])
                tracks.follow((*key, horizon), Track(state.time_s, tuple(raw.tolist()), tuple(shown.tolist()), None))
    return Answer(deciding.stand_in, found)


def _forecasts(
    request: Request, runs: Sequence[PastRun], deciding: DecidingRule
) -> list[tuple[IntColumn, FloatColumn]]:
    """Return the rows of the waiting jobs of each pool, and their quantiles before any correction. Raises RuleTooSlowError."""
    state = request.state
    known, numbers = _known(request)
    changeover = Changeover(np.array(request.free_s, dtype=np.float64), np.array(request.start_s, dtype=np.float64))
    pools = list(pools_of(state, deciding.rule, known, sorted({run.num_gpus for run in runs})))
    found = []
    for place, pool in enumerate(pools):
        past = _past(request, pools, place, runs, numbers)
        effort = Effort(cpu_s=request.cpu_s * len(pool.waiting) / max(len(state.pending), 1))
        raw_s = forecast(
            pool.queue, past, deciding.rule,
            round_s=deciding.round_s, seed=state.sequence, effort=effort, changeover=changeover,
        )  # fmt: skip
        found.append((pool.waiting, raw_s))
    return found


def _waits(rows: IntColumn, raw_s: FloatColumn, shown_s: FloatColumn, calibration: Calibration) -> Iterator[Waits]:
    """Yield the ranges; a job that starts within the horizon in fewer than half of the samples has none."""
    for row, raw, shown, (held, known) in zip(rows.tolist(), raw_s, shown_s, calibration.held(raw_s), strict=True):
        if raw[1] >= UNTIL_S - _ROOM_S:
            continue
        latest_s = None if raw[2] >= UNTIL_S - _ROOM_S else float(shown[2])
        yield Waits(row, float(shown[0]), float(shown[1]), latest_s, held, known)


def _known(request: Request) -> tuple[Known, _Numbers]:
    numbers = _Numbers()
    gpus = request.state.jobs.num_gpus.tolist()
    group = [numbers.of(user) for user in request.users]
    kind = [numbers.of((user, name, size)) for user, name, size in zip(request.users, request.names, gpus, strict=True)]
    ending = np.zeros(len(gpus), dtype=np.bool_)
    ending[list(request.ending)] = True
    return Known(
        np.array(group, dtype=np.int64), np.array(kind, dtype=np.int64), request.limits_s, ending, request.order
    ), numbers


class _Numbers:
    """Numbers of values: equal values have equal numbers."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        """Bound: the jobs of one forecast."""

    def of(self, value: Hashable) -> int:
        return self._known.setdefault(value, len(self._known))


def _past(request: Request, pools: Sequence[Pool], place: int, runs: Sequence[PastRun], numbers: _Numbers) -> PastJobs:
    """Return the past jobs for one pool: all ended ones, for their run times and submissions, and the present ones of the pool.

    The journal has no nodes of ended jobs: a user's ended jobs count for the pool of the user's present jobs; those of other users
    are divided among the pools by their GPUs.
    """
    pool = pools[place]
    here = _runs_here(request, pools, place, runs)
    jobs = request.state.jobs
    ended = PastJobs(
        submit_s=np.array([run.submit_s for run in here]),
        end_s=np.array([run.end_s for run in here], dtype=np.float64),
        duration_s=np.array([run.service_s if run.start_s is not None else 0.0 for run in here], dtype=np.float64),
        gpus=np.array([run.num_gpus for run in here], dtype=np.int64),
        size=np.array([pool.sizes[past_request(run.num_gpus)] for run in here], dtype=np.int64),
        group=np.array([numbers.of(run.user) for run in here], dtype=np.int64),
        kind=np.array([numbers.of((run.user, run.name, run.num_gpus)) for run in here], dtype=np.int64),
        limit_s=np.full(len(here), np.nan),
    )
    queued, unknown = pool.queue.jobs, np.full(len(pool.rows), np.nan)
    present = PastJobs(
        jobs.submit_time_s[pool.rows],
        unknown,
        unknown,
        queued.gpus,
        queued.size,
        queued.group,
        queued.kind,
        queued.limit_s,
    )
    return _joined(ended, present)


def _runs_here(request: Request, pools: Sequence[Pool], place: int, runs: Sequence[PastRun]) -> list[PastRun]:
    ran = [run for run in runs if run.start_s is not None and run.service_s > 0 and run.num_gpus > 0]
    if len(pools) == 1:
        return ran
    home = {request.users[row]: number for number, pool in enumerate(pools) for row in pool.rows.tolist()}
    gpus = np.array([sum(pool.queue.node_gpus) for pool in pools], dtype=np.float64)
    drawn = np.random.default_rng(place).random(len(ran)) < gpus[place] / max(gpus.sum(), 1.0)
    return [
        run
        for run, lucky in zip(ran, drawn.tolist(), strict=True)
        if home.get(run.user, place if lucky else -1) == place
    ]


def _joined(one: PastJobs, other: PastJobs) -> PastJobs:
    """Return both, by submission."""
    order = np.argsort(np.concatenate((one.submit_s, other.submit_s)), kind="stable")
    names = ("submit_s", "end_s", "duration_s", "gpus", "size", "group", "kind", "limit_s")
    columns = {name: np.concatenate((getattr(one, name), getattr(other, name)))[order] for name in names}
    return replace(one, **columns)
