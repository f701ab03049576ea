"""Progress of a training on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

import rich.console
import rich.progress

_DAY_S = 86_400.0


class TrainingProgress:
    """Shows progress inside a `with` block. Invariant: there is a bar only on a terminal, and only inside the block."""

    def __init__(self, out: TextIO | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stderr
        self._monotonic = monotonic
        self._bar: rich.progress.Progress | None = None
        self._task = rich.progress.TaskID(0)
        self._phase = ""
        self._where = ""
        self._evaluation = ""

    def __enter__(self) -> TrainingProgress:
        if self._out.isatty():
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.MofNCompleteColumn(),
                rich.progress.TimeRemainingColumn(),
                rich.progress.TextColumn("{task.fields[evaluation]}"),
                console=rich.console.Console(file=self._out),
                get_time=self._monotonic,
                speed_estimate_period=_DAY_S,  # a round may take longer than the 30 s that rich looks back by default
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def round(self, phase: str, done: int, total: int) -> None:
        """Show that `done` rounds of the phase are done."""
        self._where = f"{phase} {done}/{total}"
        if self._bar is None:
            return
        if phase != self._phase:
            self._task = self._bar.add_task(phase, total=total, completed=done, evaluation=self._evaluation)
            self._phase = phase
        self._bar.update(self._task, completed=done)

    def evaluated(self, figure: float, best: float) -> None:
        """Show the result of the last evaluation."""
        self._evaluation = f"validation {figure:.6g}" + ("" if figure == best else f", best {best:.6g}")
        if self._bar:
            self._bar.update(self._task, evaluation=self._evaluation)
        else:
            self.say(f"{self._where}: {self._evaluation}")

    def say(self, text: str) -> None:
        """Write the text as a separate line."""
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            self._out.write(f"{text}\n")
            self._out.flush()
