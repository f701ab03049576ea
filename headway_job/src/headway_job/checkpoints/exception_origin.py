"""Finds out whether an exception comes from this package, and whether one is ending the program."""

from __future__ import annotations

import sys
import traceback
from typing import Optional

_PACKAGE = __name__.split(".", maxsplit=1)[0]


def raised_by_us(error: BaseException) -> bool:
    """Return True if this package or torch has raised it, not a signal handler of the program that was called during our code."""
    if not isinstance(error, Exception):
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(name.startswith((_PACKAGE + ".", "torch.")) for name in names)


def is_propagating(known: Optional[BaseException]) -> bool:
    """Return True if an exception is raised or handled in the caller, except `known`, which was handled before."""
    error = sys.exc_info()[1]
    return error is not None and error is not known


def program_is_failing() -> bool:
    """Return True if an uncaught exception ends the program; for functions of atexit."""
    return getattr(sys, "last_value", None) is not None
