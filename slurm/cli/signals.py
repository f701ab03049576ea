"""Signals end a command as errors do: whatever it has created is removed on the way."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

_received: list[int] = []
"""Signals so far. Python drops an exception that a handler raises while a finalizer runs: then the command would go on."""


def end_on_signals() -> None:
    """Let SIGTERM, SIGHUP and SIGINT raise SystemExit from now on."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)


def stop_if_signalled() -> None:
    """Raise SystemExit if a signal was received."""
    if _received:
        raise SystemExit(128 + _received[0])


def _end(signum: int, _frame: FrameType | None) -> NoReturn:
    _received.append(signum)
    raise SystemExit(128 + signum)
