"""Time limits for calls that may never return. Each runs in a thread, which is abandoned if it makes no progress for too long.

A store may answer late or never. A client without a time limit would block the save, and with it the end of the program.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, List, TypeVar

_Result = TypeVar("_Result")
_LOOKS = 20
"""So many looks in a row without progress are a silence. Each is counted as its share of the time, however late it is: while this
process was stopped, or its machine was suspended, no store could answer it."""
_MAX_ABANDONED = 4
"""Each abandoned call may hold a copy of the state."""


class StoreTimeout(OSError):  # noqa: N818 - an event, not a mistake
    """The store does not answer."""


class CallProgress:
    """The progress of a call."""

    def __init__(self) -> None:
        self.times = 0
        """How often it made progress."""
        self.abandoned = False

    def abandon(self) -> None:
        """Note that no caller waits for the call any more."""
        self.abandoned = True

    def made(self) -> None:
        """Note progress. Raises StoreTimeout if the call was abandoned, so that it ends."""
        if self.abandoned:
            raise StoreTimeout("the call was abandoned")
        self.times += 1


class IoDeadline:
    """Invariant: `run` returns or raises once this process has run for `most_s`, and one look, since the call's last progress."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._abandoned: List[threading.Thread] = []
        """Threads of calls that were not answered. Bound: `_MAX_ABANDONED`."""

    def run(self, call: Callable[[CallProgress], _Result]) -> _Result:
        """Return or raise what the call does; raise StoreTimeout if it makes no progress for too long."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= _MAX_ABANDONED:
            raise StoreTimeout(f"{_MAX_ABANDONED} earlier calls have not been answered")
        progress, ended = CallProgress(), threading.Event()
        results: List[_Result] = []
        errors: List[BaseException] = []

        def work() -> None:
            try:
                results.append(call(progress))
            except BaseException as error:
                errors.append(error)
            ended.set()

        thread = threading.Thread(target=work, name="headway-store", daemon=True)
        thread.start()
        seen = silent = 0
        while not ended.wait(self._most_s / _LOOKS):
            silent = silent + 1 if progress.times == seen else 0
            seen = progress.times
            if silent >= _LOOKS:
                progress.abandon()
                self._abandoned.append(thread)
                raise StoreTimeout(f"no answer for {self._most_s:g} s")
        if errors:
            raise errors[0]
        return results[0]


def limit_requests(system: Any, most_s: float) -> None:
    """Set a time limit for the `requests` session of a store, which has none, so that abandoned calls end, too."""
    session: Any = getattr(system, "session", None)
    if type(session).__module__.split(".", maxsplit=1)[0] != "requests" or hasattr(session, "headway_limit_s"):
        return
    unlimited = session.request

    def request(*args: Any, **options: Any) -> Any:
        options.setdefault("timeout", session.headway_limit_s)
        return unlimited(*args, **options)

    session.headway_limit_s = most_s
    session.request = request
