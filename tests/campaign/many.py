"""Plays many stories, several at a time, and adds up their results."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.campaign.play import Played, play
from tests.campaign.plot.generate import make_story
from tests.campaign.verdict.defects.catalogue import DEFECTS

_STORIES_PER_PROCESS = 200


@dataclass(slots=True)
class Tally:
    """Totals over all stories played so far."""

    runs: int = 0
    operations: int = 0
    jobs: int = 0
    starts: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    """Those of the faults that have taken effect."""
    violations: list[tuple[int, str]] = field(default_factory=list)

    def add(self, seed: int, played: Played) -> None:
        """Count one story."""
        self.runs += 1
        self.operations += played.operations
        self.jobs += played.jobs
        self.starts += played.starts
        self.virtual_s += played.virtual_s
        self.faults.update(played.faults)
        self.effects.update(played.effects)
        self.violations += [(seed, str(violation)) for violation in played.violations]


def run(
    seeds: range,
    processes: int,
    defect: str = "",
    *,
    quiet: bool = True,
    broken: Callable[[int, Played], None] = lambda _seed, _played: None,
) -> Tally:
    """Play the stories of these seeds, several at a time, and return the totals. `broken` gets each story that breaks a promise."""
    tally, begun_s = Tally(), time.monotonic()
    at_once = processes * _STORIES_PER_PROCESS
    for first in range(0, len(seeds), at_once):
        # New processes now and then, as memory grows. The pool's own max_tasks_per_child hangs on Python 3.11 (CPython 115634).
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(_play_seed, seed, defect): seed for seed in seeds[first : first + at_once]}
            for future in as_completed(waiting):
                seed, played = waiting[future], future.result()
                tally.add(seed, played)
                if played.violations:
                    broken(seed, played)
                if not quiet:
                    for violation in played.violations:
                        print(f"seed {seed}: {str(violation)[:600]}", file=sys.stderr, flush=True)
                if not quiet and sys.stderr.isatty():
                    left_s = (time.monotonic() - begun_s) / tally.runs * (len(seeds) - tally.runs)
                    text = f"{tally.runs}/{len(seeds)} stories, {len(tally.violations)} violations, {left_s:.0f} s left"
                    print(f"\r{text} ", end="", file=sys.stderr)
        if not quiet and not sys.stderr.isatty():
            played_s = time.monotonic() - begun_s
            print(
                f"{tally.runs} stories, {len(tally.violations)} violations, {played_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return tally


def _play_seed(seed: int, defect: str) -> Played:
    with silenced(), DEFECTS[defect]() if defect else nullcontext():
        return play(make_story(seed))


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress messages of `logging` and warnings, and leave both as they were: a test may play stories in its own process."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
