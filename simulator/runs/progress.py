"""Carry a run out and report its progress."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from simulator.kernel import MEND, compiled

if TYPE_CHECKING:
    from rich.progress import Progress

    from simulator.engine.simulation import Simulation

OnProgress = Callable[[float], None]
"""Called from time to time with the share of a run that is done."""
CLOCK_EVERY = 256
"""Instants between two readings of the real clock."""
REPORT_EVERY_S = 0.1
MANY_JOBS = 2_000
"""Jobs of a trace from which on a run without compiled loops takes so much longer that this is reported."""
PATIENCE_S = 1.0
"""A run that takes less time than this shows no bar."""


def report_interpreted(jobs: int) -> None:
    """Write a line to standard error if a run of so many jobs takes several times longer, because the loops are not compiled."""
    if jobs >= MANY_JOBS and not compiled():
        sys.stderr.write(
            f"headway-sim: the simulator's loops are not compiled, so this takes several times longer. {MEND}\n"
        )


def drive(simulation: Simulation, on_progress: OnProgress | None = None) -> None:
    """Carry the run out until every job has finished, or nothing more will happen.

    Node changes after the last finish are left out: decisions at them would be counted and decide nothing.
    """
    advance, decide, finished, loop = simulation.advance, simulation.decide, simulation.finished.index, simulation.loop
    arrived, coming = loop.arrived, loop.num_jobs - loop.arrived
    jobs = len(finished) + loop.num_waiting + len(loop.running) + coming
    left, due = CLOCK_EVERY, time.perf_counter() + REPORT_EVERY_S
    while len(finished) < jobs and advance():
        decide()
        left -= 1
        if not left:
            left = CLOCK_EVERY
            if on_progress is not None and time.perf_counter() >= due:
                due = time.perf_counter() + REPORT_EVERY_S
                on_progress((loop.arrived - arrived + len(finished)) / (coming + jobs))


def collect_seldom() -> None:
    """Let Python's garbage collector run seldom, and over new objects only; for processes that exist for one run.

    The event loop makes no cycles; scanning all jobs and modules again and again took a fifth of a run's time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()


class Bar:
    """A progress bar on standard error, if that is a terminal, for a run that takes longer than a second.

    rich is imported only when the bar is first drawn.
    """

    def __init__(self, label: str) -> None:
        """Prepare a bar that is not drawn yet."""
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
    def on_progress(self) -> OnProgress | None:
        """The function to call with the share that is done; None where standard error is not a terminal."""
        return self._show if self._wanted else None

    def _show(self, share: float) -> None:
        if self._progress is None:
            if time.perf_counter() - self._begin < PATIENCE_S:
                return
            self._progress = bars()
            self._progress.start()
            self._progress.add_task(self._label, total=1.0)
        self._progress.update(self._progress.task_ids[0], completed=share)
        self._progress.refresh()


def bars() -> Progress:
    """Return progress bars on standard error. They draw only when refreshed: they start no thread beside a simulation or a fork."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """Expected time left, from the mean speed so far: rich's own column forgets it where reports come seldom."""

        def render(self, task: Task) -> Text:
            """Return hours, minutes and seconds, or dashes before the first report."""
            return Text(time_left(task.elapsed, task.completed), style="progress.remaining")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeft(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )


def time_left(elapsed_s: float | None, share: float) -> str:
    """Return the expected time until everything is done as H:MM:SS; dashes if nothing is known yet."""
    if not elapsed_s or share <= 0:
        return "-:--:--"
    left = round(elapsed_s * max(1 - share, 0) / share)
    return f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
