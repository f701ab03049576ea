"""Calls that may never come back are made in a thread that is left behind when nothing has been heard of it for too long.

Stores answer late, or never: a client without a time limit would hold the save, and with it the end of the program.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, List, TypeVar

_Result = TypeVar("_Result")
_MOST_LEFT = 4
"""Each one that is left behind may hold a copy of the state."""


class Silent(OSError):  # noqa: N818 - what it is, as a word
    """A store that does not answer."""


class Heard:
    """When a call was last seen to get on."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        self.given_up = False

    def now(self) -> None:
        """It gets on. Ends the call where nobody waits for it any more."""
        if self.given_up:
            raise Silent("nobody waits for it any more")
        self.at_s = time.monotonic()


class Patience:
    """Invariant: `wait_for` returns or raises within `most_s` of the last that was heard of the call."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._left: List[threading.Thread] = []

    def wait_for(self, call: Callable[[Heard], _Result]) -> _Result:
        """What the call gives or raises; Silent where it does neither."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= _MOST_LEFT:
            raise Silent(f"{_MOST_LEFT} earlier calls have not been answered")
        heard, ended = Heard(), threading.Event()
        results: List[_Result] = []
        errors: List[BaseException] = []

        def work() -> None:
            try:
                results.append(call(heard))
            except BaseException as error:
                errors.append(error)
            ended.set()

        thread = threading.Thread(target=work, name="headway-store", daemon=True)
        thread.start()
        while not ended.wait(max(heard.at_s + self._most_s - time.monotonic(), 0.001)):
            if time.monotonic() - heard.at_s >= self._most_s:
                heard.given_up = True
                self._left.append(thread)
                raise Silent(f"no answer for {self._most_s:g} s")
        if errors:
            raise errors[0]
        return results[0]


def limit_requests(system: Any, most_s: float) -> None:
    """Gives `requests` sessions, which have no time limit of their own, one: what is left behind ends then."""
    session: Any = getattr(system, "session", None)
    if type(session).__module__.split(".", maxsplit=1)[0] != "requests" or hasattr(session, "headway_limit_s"):
        return
    unlimited = session.request

    def request(*args: Any, **options: Any) -> Any:
        options.setdefault("timeout", session.headway_limit_s)
        return unlimited(*args, **options)

    session.headway_limit_s = most_s
    session.request = request
