"""Whether somebody wants a checkpoint: a signal, a thread of ours, the script. Asking sets a flag and does nothing else."""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any, Optional

_log = logging.getLogger("headway_job")


class Asked:
    """Invariant: after `ask` a save begins whose state is not older than the question, unless the run ends first."""

    def __init__(self) -> None:
        self.pending = False

    def ask(self) -> None:
        """In any thread, or in a signal's handler. Asking again before the save begins changes nothing."""
        self.pending = True

    def answered(self) -> None:
        """A save begins here: its state is copied after this call."""
        self.pending = False


def listen(asked: Asked) -> None:
    """SIGUSR1 asks from here on, and then calls the handler that the program had for it. In the main thread only."""
    before: Any = signal.getsignal(signal.SIGUSR1)

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        asked.ask()
        if callable(before):
            before(number, frame)

    try:
        signal.signal(signal.SIGUSR1, on_signal)
    except ValueError:
        _log.warning("headway_job.checkpoint was not called in the main thread: SIGUSR1 does not ask for a checkpoint.")
