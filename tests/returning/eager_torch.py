"""Spares a program two of the three seconds of CPU that torch takes to load; imported before torch.

Two parts are replaced, which eager training on CPUs never uses: the compiler (`torch._dynamo`, which each optimizer imports) and
the shapes of operators on tensors without data (`torch._meta_registrations`). Programs whose loading of torch is measured do not
import this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Compiler(ModuleType):
    """A compiler that compiles nothing: `disable` returns the function as it is, and all other calls have no effect."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the function."""
        return function

    def __getattr__(self, name: str) -> Compiler:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Compiler:
        return self


sys.modules["torch._dynamo"] = Compiler("torch._dynamo")
sys.modules["torch._meta_registrations"] = ModuleType("torch._meta_registrations")
