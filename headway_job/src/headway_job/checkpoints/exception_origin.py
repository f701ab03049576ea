"""Whose an exception is that is raised in the midst of our code, or on its way past it."""

from __future__ import annotations

import sys
import traceback
from typing import Optional

_PACKAGE = __name__.split(".", maxsplit=1)[0]


def is_ours(error: BaseException) -> bool:
    """Whether our code or torch has raised it: not the program's handler of a signal, which may be called in the midst of it."""
    if not isinstance(error, Exception):
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(name.startswith((_PACKAGE + ".", "torch.")) for name in names)


def on_its_way(known: Optional[BaseException]) -> bool:
    """Whether an exception is being raised or handled where we are called, other than one that was so before."""
    error = sys.exc_info()[1]
    return error is not None and error is not known


def ends_the_program() -> bool:
    """For functions of atexit: whether an exception that nobody has caught does."""
    return getattr(sys, "last_value", None) is not None
