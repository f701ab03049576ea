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

    Invariant: Interrupted is raised at most once, and never after `settle`.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Set up; `tell` is called with one line for each signal that has no effect."""
        self._tell = tell
        self._settled = False
        self._put_off = ""
        self._before: dict[int, Any] = {}
        self.received: int | None = None
        """Number of the first signal; None before."""

    def __enter__(self) -> Self:
        heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
        self._before = {number: signal.signal(number, self._handle) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def put_off(self, until: str) -> Iterator[None]:
        """Delay signals: one that arrives in the context raises Interrupted at its end."""
        self._put_off = until
        try:
            yield
        finally:
            self._put_off = ""
        if self.received is not None:
            self._settled = True
            raise Interrupted(self.received)

    def settle(self) -> None:
        """Note that the work is done: the clean-up that follows is not interrupted."""
        self._settled = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.received is None:
            self.received = number
        if self._put_off:
            self._tell(self._put_off)
            return
        if self._settled:
            self._tell("clearing up; please wait")
            return
        self._settled = True
        raise Interrupted(number)
