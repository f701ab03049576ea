"""Carrying a run out, and saying how far it is."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

    from simulator.engine.simulation import Simulation

Tell = Callable[[float], None]
"""Told from time to time which share of a run is done."""
LOOK_EVERY = 256
"""Instants between two looks at the real clock."""
TELL_EVERY_S = 0.1
PATIENCE_S = 1.0
"""A run that is done by then shows no bar."""


def drive(simulation: Simulation, tell: Tell | None = None) -> None:
    """Carry the run out until every job has finished, or nothing will happen any more.

    What would happen to nodes after the last finish is left out: it would only count decisions that decide nothing.
    """
    advance, decide, finished = simulation.advance, simulation.decide, simulation.finished.index
    jobs = len(simulation.trace)
    look, due = LOOK_EVERY, time.perf_counter() + TELL_EVERY_S
    while len(finished) < jobs and advance():
        decide()
        look -= 1
        if not look:
            look = LOOK_EVERY
            if tell is not None and time.perf_counter() >= due:
                due = time.perf_counter() + TELL_EVERY_S
                tell((simulation.loop.arrived + len(finished)) / (2 * jobs))


def collect_seldom() -> None:
    """Let Python's collector look only at what a run makes, and seldom. For programs whose process is there for the run.

    The loop makes no cycles; looking at all jobs and modules again and again took a fifth of a run's time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


class Bar:
    """A progress bar on a terminal's standard error, for a run that takes longer than a second. Elsewhere nothing.

    rich is imported only when the bar is first drawn.
    """

    def __init__(self, label: str) -> None:
        """Not drawn yet."""
        self._label = label
        self._begin = time.perf_counter()
        self._wanted = sys.stderr.isatty()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @property
    def tell(self) -> Tell | None:
        """What to call with the share that is done; None where nobody looks."""
        return self._tell if self._wanted else None

    def _tell(self, share: float) -> None:
        if self._progress is None:
            if time.perf_counter() - self._begin < PATIENCE_S:
                return
            self._progress = bars()
            self._progress.start()
            self._progress.add_task(self._label, total=1.0)
        self._progress.update(self._progress.task_ids[0], completed=share)
        self._progress.refresh()


def bars() -> Progress:
    """Progress bars on standard error that draw only when told to: no thread of theirs runs beside a simulation or a fork."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
