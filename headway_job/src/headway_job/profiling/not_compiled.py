"""Functions of ours that torch.compile finds in a program, and leaves as they are."""

from __future__ import annotations

import sys
from typing import Any, Callable

Method = Callable[..., Any]


def not_compiled(function: Method) -> Method:
    """Return a function that does the same, and that Dynamo does not compile, nor anything that it calls.

    A program that has not imported Dynamo by now compiles nothing yet: for it, the function is returned as it is.
    """
    disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
    return function if disable is None else disable(function)
