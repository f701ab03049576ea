"""The end of the program waits for the saves that are being written, as the program may not have called `close`.

A run that has ended is not kept for this: its model, its optimizer and the run itself are freed when the program drops them.
"""

from __future__ import annotations

import atexit
import threading
from weakref import WeakSet

from .async_writer import AsyncWriter
from .exception_origin import program_is_failing

EXIT_WAIT_S = 600.0
OTHERS_WAIT_S = 60.0
"""After an exception: time for other ranks, which may never begin to write their part of the save."""

_writers: WeakSet[AsyncWriter] = WeakSet()
"""Bound: the runs that exist, and those that are being written: the writing thread keeps its writer."""


def wait_for(writer: AsyncWriter) -> None:
    """Let the end of the program wait for what is being written then.

    Python calls us twice at its end: before thread pools refuse new work, which clients of remote stores need, and at last. Between
    the two calls, the program's own threads may still train. It calls us before the functions that are registered already. So we
    are registered again for each run, which takes some bytes.
    """
    _writers.add(writer)
    atexit.register(_wait)
    try:
        threading._register_atexit(_wait)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        pass  # Python < 3.9, or the main thread has ended


def _wait() -> None:
    for writer in list(_writers):
        writer.wait_at_end(EXIT_WAIT_S, OTHERS_WAIT_S if program_is_failing() else None)
