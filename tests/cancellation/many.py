"""Cuts many awaits, several at a time, and collects what was broken."""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.cancellation import agent_run, commands_run, controller_run, pyslurm_run, services_run, watchdog_run
from tests.cancellation.points import Cut, Outcome, Point

RUNS: dict[str, Callable[..., Outcome]] = {
    "controller": controller_run.run,
    "refusals": controller_run.run_refusals,
    "services": services_run.run,
    "agent": agent_run.run,
    "watchdog": watchdog_run.run,
    "watchdog-broken-off": watchdog_run.run_broken_off,
    "commands": commands_run.run,
    "pyslurm": pyslurm_run.run,
}
_TRIES = 3
"""In real time, an await may come a time less in another run."""

Job = tuple[str, Point, Cut]


@dataclass(slots=True)
class Tally:
    """Results of many runs."""

    cut: Counter[str] = field(default_factory=Counter)
    """Awaits that were cut, by run."""
    ended: Counter[str] = field(default_factory=Counter)
    """Those after which the program ended by itself, and was restarted."""
    missed: list[str] = field(default_factory=list)
    """Awaits that did not come again."""
    violations: list[str] = field(default_factory=list)


def points_of(name: str, most: int = sys.maxsize) -> list[Point]:
    """Return the awaits of a run, of each place in the code the first `most`. Raises AssertionError if the uncut run fails."""
    outcome = RUNS[name]()
    assert not outcome.violations, outcome.violations
    return sorted(point for point in outcome.reached if point.nth <= most)


def cut_all(
    jobs: Sequence[Job], processes: int, note: Callable[[int, list[str]], None] = lambda _done, _bad: None
) -> Tally:
    """Run each, and cut one await in it."""
    tally = Tally()
    for done, (job, outcome, problem) in enumerate(_results(jobs, processes), 1):
        name, point, cut = job
        where = f"{name}: {cut.name} at {point}"
        found = [f"{where}: {problem}"] if problem else []
        if outcome is not None:
            found += [f"{where} (ended {outcome.exits} times): {text}" for text in outcome.violations]
        if outcome is None:
            pass  # it could not be played
        elif not outcome.done:
            tally.missed.append(where)
        else:
            tally.cut[name] += 1
            tally.ended[name] += bool(outcome.exits)
        tally.violations += found
        note(done, found)
    return tally


def _results(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Outcome | None, str]]:
    if processes == 1:
        yield from map(_one, jobs)
        return
    # Fresh processes: gRPC, which this one has used, does not survive a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_one, jobs, chunksize=2)


def _one(job: Job) -> tuple[Job, Outcome | None, str]:
    name, point, cut = job
    try:
        for _ in range(_TRIES):
            outcome = RUNS[name](point, cut)
            if outcome.done or outcome.violations:
                break
        outcome.reached.clear()  # neither is sent between processes
        outcome.lines.clear()
    except BaseException:  # noqa: BLE001 - a run that cannot be played is reported as such
        return job, None, traceback.format_exc()
    return job, outcome, ""


def jobs_of(names: Iterable[str], most: int, cuts: Iterable[Cut] = tuple(Cut)) -> list[Job]:
    """Return every cut of these runs; `most`: awaits of each place.

    Runs in virtual time, which only compute, and runs in real time, which mostly wait, are mixed: so several at a time take less
    time.
    """
    jobs = [(name, point, cut) for name in names for point in points_of(name, most) for cut in cuts]
    random.Random(0).shuffle(jobs)
    return jobs
