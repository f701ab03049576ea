"""The errors of the demonstration. Each text says what is wrong, where, and what to do."""

from __future__ import annotations

import signal


class DemoError(Exception):
    """The demonstration cannot continue."""


class DemoRunningError(DemoError):
    """Another demonstration is running on this machine."""


class Interrupted(BaseException):
    """A signal ended the demonstration."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.strsignal(number))
        self.number = number
