"""The time of an IoDeadline: it looks at a call as often as the test has it look, however fast or slow the threads are."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import ClassVar

import pytest
from headway_job.checkpoints.stores import io_deadline

LOOKS = io_deadline._LOOKS
"""Looks without progress that are a silence."""
_PATIENCE_S = 60.0


class Looks:
    """Looks that are still to be made. Invariant: `take` returns once all of them were made, and none is made besides."""

    def __init__(self) -> None:
        self._left = 0
        self._changed = threading.Condition()

    def take(self, count: int) -> None:
        """Let so many looks pass; in the thread of the call."""
        with self._changed:
            self._left += count
            assert self._changed.wait_for(lambda: not self._left, _PATIENCE_S)

    def wait(self, ended: threading.Event) -> bool:
        """Wait for the next look or the end of the call; return True at its end."""
        while not ended.is_set():
            with self._changed:
                if self._left:
                    self._left -= 1
                    self._changed.notify_all()
                    return False
                self._changed.wait(0.002)
        return True


class _Ended(threading.Event):
    looks: ClassVar[Looks]

    def wait(self, timeout: float | None = None) -> bool:
        return self.looks.wait(self)


def install(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Have every IoDeadline look only when the test says so."""
    _Ended.looks = Looks()
    monkeypatch.setattr(io_deadline, "threading", SimpleNamespace(Event=_Ended, Thread=threading.Thread))
    return _Ended.looks
