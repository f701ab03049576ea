"""Ctrl-C and other signals: the first one ends the demonstration, later ones do not interrupt its clean-up."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from slurm.demo.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A context in which the first signal raises Interrupted.

    Invariant: Interrupted is raised at most once, and never after `finish`.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        """Set up; `report` is called with one line for each signal that has no effect now."""
        self._report = report
        self._finished = False
        self._deferred = ""
        """Text for signals that are deferred now; empty = none are."""
        self._before: dict[int, Any] = {}
        self.received: int | None = None
        """Number of the first signal; None before."""

    def __enter__(self) -> Self:
        # A signal that is ignored, as under nohup, stays ignored.
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self, text: str) -> Iterator[None]:
        """Defer signals: one that arrives in the context is reported with the text, and raises Interrupted at its end."""
        self._deferred = text
        try:
            yield
        finally:
            self._deferred = ""
        if self.received is not None:
            self._finished = True
            raise Interrupted(self.received)

    def finish(self) -> None:
        """Note that the work is done: the clean-up that follows is not interrupted."""
        self._finished = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.received is None:
            self.received = number
        if self._deferred:
            self._report(self._deferred)
            return
        if self._finished:
            self._report("clearing up; please wait")
            return
        self._finished = True
        raise Interrupted(number)
