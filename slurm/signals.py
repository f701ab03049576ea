"""Signals end a command as errors do: whatever it has created is removed on the way."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_received: list[int] = []
"""Signals so far. Python drops an exception that a handler raises while a finalizer runs: then the command would go on."""


def end_on_signals() -> None:
    """Let SIGTERM, SIGHUP and SIGINT raise SystemExit from now on, except those that are ignored, as SIGHUP is under nohup."""
    _handle(_end)


def stop_if_signalled() -> None:
    """Raise SystemExit if a signal was received."""
    if _received:
        raise SystemExit(128 + _received[0])


@contextlib.contextmanager
def signals_deferred(notice: str = "") -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until after the block, because an interrupted deletion leaves things behind.

    Each signal prints the notice on standard error. Programs that are started in the block do not inherit the delay. The handlers
    are replaced: a signal mask holds for one thread, and the kernel would give the signal to another one.
    """
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # handlers run in the main thread, so they raise nothing here
        yield
        return
    deferred: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        deferred.append(number)
        if notice:
            sys.stderr.write(f"{notice}\n")

    before = _handle(note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in deferred[:1]:
            signal.raise_signal(number)


def _handle(handler: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Install a handler of the signals that are not ignored. Return the handlers before; None, of other languages, stay."""
    handled = [number for number in _ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, handler) for number in handled}


def _end(signum: int, _frame: FrameType | None) -> NoReturn:
    _received.append(signum)
    raise SystemExit(128 + signum)
