"""The errors of the demonstration. Each text says what was wrong, where, and the mend."""

from __future__ import annotations

import signal


class DemoError(Exception):
    """The demonstration cannot go on."""


class DemoRunningError(DemoError):
    """Another demonstration runs on this machine."""


class Interrupted(BaseException):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number
