"""Time limit of one call to Slurm whose work is done in a thread."""

from __future__ import annotations

import asyncio
import time
from typing import Final, TypeVar

from controller.base.errors import SlurmUnavailableError

_POLL_S: Final = 0.2
"""Maximum time until work notices that its call is over."""
_END_S: Final = 1.0 + 2 * _POLL_S
"""Time in which work ends what it has begun, seconds."""

Result = TypeVar("Result")


class TimeLimit:
    """Time limit of one call, counted from the call: work that waits for a free thread uses up the time as well.

    Invariant: once the caller has its answer, error or cancellation, `left_s` raises. So work that asks it before it sends
    anything sends nothing about which its caller was told that it failed.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._begun = False
        self._stopped = False

    def left_s(self) -> float:
        """Return the seconds that a wait may take now. Raises TimeoutError when the time is over, or the caller has gone."""
        self._begun = True
        left_s = self._deadline - time.monotonic()
        if self._stopped or left_s <= 0:
            raise TimeoutError("the time is over")
        return min(left_s, _POLL_S)

    async def result(self, work: asyncio.Future[Result], name: str) -> Result:
        """Return the result of the work, or raise its error; SlurmUnavailableError if it does not end in time.

        `name`: the call, for the message. The work is stopped before this returns or raises, also when it is cancelled.
        """
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may not wait for it
        try:
            await asyncio.wait([work], timeout=self._deadline - time.monotonic())
        finally:
            self._stopped = True
            try:
                if self._begun and not work.done():
                    await asyncio.wait([work], timeout=_END_S)
            finally:
                if not work.done():
                    work.cancel()  # it keeps no thread waiting that has not begun it
        if work.cancelled():
            raise SlurmUnavailableError(
                f"{name}: not {'ended' if self._begun else 'begun'} within {self.timeout_s:g} s, because "
                f"{'its program hangs' if self._begun else 'earlier calls of Slurm still take all threads'}"
            )
        return work.result()
