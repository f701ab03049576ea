"""SIGINT and SIGTERM as requests to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTED = b"stopping after this round; once more to stop at once\n"


class Interrupts:
    """Records a signal inside a `with` block. The first one only sets `asked`; a second one has its former effect.

    Bound: the signals that it records.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        """Name of the signal that was received, or None."""
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> Interrupts:
        # Python handles signals in the main thread alone; a training in another thread is stopped by its caller.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put_back()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        self._put_back()
        # Not through sys.stderr, to which the interrupted code may be writing.
        with suppress(OSError):
            os.write(2, _NOTED)

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
