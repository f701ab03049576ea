"""A call that hangs in the kernel, as a look-up in a directory does that does not answer; for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEAVE_S = 60.0


class HangingService:
    """Every call blocks until the service answers again; from then on none does."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe
        self._over = threading.Event()
        self._changed = threading.Condition()
        """Guards `inside`."""
        self.inside = 0
        """Calls that have begun and not returned."""
        os.mkfifo(pipe)

    def __call__(self, *_: object) -> str:
        """Wait in the kernel for a writer of the pipe."""
        self._count(1)
        try:
            if not self._over.is_set():
                os.close(os.open(self._pipe, os.O_RDONLY))
        finally:
            self._count(-1)
        return "answered"

    def _count(self, more: int) -> None:
        with self._changed:
            self.inside += more
            self._changed.notify_all()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let calls return within the context, and afterwards. A call that has begun by its end has returned then."""
        self._over.set()
        writer = os.open(self._pipe, os.O_RDWR)
        try:
            yield
        finally:
            with self._changed:  # a call may not have opened its end of the pipe yet
                self._changed.wait_for(lambda: not self.inside, _LEAVE_S)
            os.close(writer)
