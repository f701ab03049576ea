"""Loads torch without what eager training on CPUs never calls; imported before torch, it saves two of three seconds of a core.

Such are the compiler (`torch._dynamo`, which each optimizer imports) and the shapes of operators on tensors without data
(`torch._meta_registrations`). Jobs whose loading of torch is measured do not import this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Compiler(ModuleType):
    """A compiler that compiles nothing: functions that should not be compiled stay as they are; everything else has no effect."""

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

import torch  # noqa: E402

torch._dynamo = sys.modules["torch._dynamo"]
