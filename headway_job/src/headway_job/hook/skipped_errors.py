"""Unexpected errors in the hook's thread: what fails is left out, and tried again after growing pauses."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Tuple, Type

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class SkippedErrors:
    """Runs the parts of the thread's work.

    Invariant: an error in one part ends neither the thread nor another part. Nothing is printed: standard error is the program's.
    """

    def __init__(self, passed_on: Type[Exception], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Errors of the class `passed_on` are expected, and raised to the caller."""
        self._passed_on = passed_on
        self._monotonic = monotonic
        self._failed: Dict[str, Tuple[float, float]] = {}
        """Part -> next time at which it is tried, and the pause before. Bound: the parts."""

    def run(self, part: str, work: Callable[..., Any], *arguments: Any) -> None:
        """Call `work`, unless this part has failed a moment ago."""
        if self.pause_s(part) > 0:
            return
        try:
            work(*arguments)
        except self._passed_on:
            raise
        except Exception:
            pause_s = min(2 * self._failed[part][1], _LONGEST_PAUSE_S) if part in self._failed else _FIRST_PAUSE_S
            self._failed[part] = self._monotonic() + pause_s, pause_s
        else:
            self._failed.pop(part, None)

    def run_now(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call `work`, whatever has failed before."""
        try:
            work(*arguments)
        except self._passed_on:
            raise
        except Exception:
            pass

    def pause_s(self, part: str) -> float:
        """Return the time until this part is tried again; 0 = it has not failed, or its pause is over."""
        return max(0.0, self._failed[part][0] - self._monotonic()) if part in self._failed else 0.0
