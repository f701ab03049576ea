"""Requests for a checkpoint, from a signal, from our own thread or from the script. A request sets a flag and does nothing else."""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any, Optional

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


def install_signal_handler(trigger: SaveTrigger) -> None:
    """Let SIGUSR1 request a save, and then call the program's own handler. Works in the main thread only."""
    before: Any = signal.getsignal(signal.SIGUSR1)

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        trigger.request()
        if callable(before):
            before(number, frame)

    try:
        signal.signal(signal.SIGUSR1, on_signal)
    except ValueError:
        _log.warning(
            "SIGUSR1 will not request a checkpoint: Python can handle signals only in the main thread, and "
            "headway_job.checkpoint was not called in the main thread. Call it there if you use `scancel --signal=USR1`."
        )
