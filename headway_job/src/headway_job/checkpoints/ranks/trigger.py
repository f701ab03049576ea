"""Requests for a checkpoint, from a signal, from our own thread or from the script. A request sets a flag and does nothing else."""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any, Optional, Tuple
from weakref import ReferenceType, ref

_log = logging.getLogger("headway_job")


class SaveTrigger:
    """Invariant: after `request`, a save begins whose state is not older than the request, unless the run ends first."""

    def __init__(self) -> None:
        self.pending = False

    def request(self) -> None:
        """Request a save, in any thread or in a signal handler. Further requests before it begins change nothing."""
        self.pending = True

    def clear(self) -> None:
        """Note that a save begins. Its state must be copied after this call."""
        self.pending = False


class _SignalHandler:
    """Invariant: there is one in a process, however many runs it has had, so that handlers do not call each other in a long chain.

    It keeps no run: a trigger lives as long as its run.
    """

    def __init__(self, before: Any) -> None:
        """`before`: the program's own handler."""
        self._before = before
        self._triggers: Tuple[ReferenceType[SaveTrigger], ...] = ()
        """One object, since a signal may arrive at any moment. Bound: the runs that exist."""

    def add(self, trigger: SaveTrigger) -> None:
        """Let the signal request a save of one more run."""
        self._triggers = (*(each for each in self._triggers if each() is not None), ref(trigger))

    def __call__(self, number: int, frame: Optional[FrameType]) -> None:
        for each in self._triggers:
            trigger = each()
            if trigger is not None:
                trigger.request()
        if callable(self._before):
            self._before(number, frame)


def install_signal_handler(trigger: SaveTrigger) -> None:
    """Let SIGUSR1 request a save, and then call the program's own handler. The first call works in the main thread only."""
    before: Any = signal.getsignal(signal.SIGUSR1)
    if isinstance(before, _SignalHandler):
        before.add(trigger)
        return
    handler = _SignalHandler(before)
    handler.add(trigger)
    try:
        signal.signal(signal.SIGUSR1, handler)
    except ValueError:
        _log.warning(
            "SIGUSR1 will not request a checkpoint: Python can handle signals only in the main thread, and "
            "headway_job.checkpoint was not called in the main thread. Call it there if you use `scancel --signal=USR1`."
        )
