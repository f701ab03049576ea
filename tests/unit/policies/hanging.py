"""A call that hangs in the kernel, as a look-up in a directory does that does not answer; for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class HangingService:
    """Every call blocks until the service answers again."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe
        os.mkfifo(pipe)

    def __call__(self, *_: object) -> str:
        """Wait in the kernel for a writer of the pipe."""
        os.close(os.open(self._pipe, os.O_RDONLY))
        return "answered"

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let calls return within the context."""
        writer = os.open(self._pipe, os.O_RDWR)
        try:
            yield
        finally:
            os.close(writer)
