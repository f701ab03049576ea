"""Several patches as one context.

Invariant: a function that replaces another can be called in the same way. A replacement that lacks a parameter of the present code
raises TypeError wherever it is called. That breaks a promise as well, and the defect itself would never be put back.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


class OtherSignatureError(Exception):
    """A patch gives a function other parameters, or makes something else of it."""


@contextmanager
def patched(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """Apply all of them for as long as the context lasts. Raises OtherSignatureError."""
    with ExitStack() as stack:
        for each in patches:
            if hasattr(each, "get_original"):  # a patch of unittest.mock, and not the context of another defect
                original, _ = each.get_original()
                require_same_signature(each.attribute, original, each.new)  # type: ignore[attr-defined]
            stack.enter_context(each)
        yield


def require_same_signature(name: str, original: Any, replacement: Any) -> None:
    """Compare names, kinds and optionality of parameters; annotations do not matter. Raises OtherSignatureError."""
    if not inspect.isroutine(original):
        if isinstance(original, property) != isinstance(replacement, property):
            raise OtherSignatureError(f"{name} is a property in one of the two only")
        return
    if not inspect.isroutine(replacement):
        raise OtherSignatureError(f"{name} is a function, and is replaced by {type(replacement).__name__}")
    if inspect.iscoroutinefunction(original) != inspect.iscoroutinefunction(replacement):
        raise OtherSignatureError(f"{name} is a coroutine function in one of the two only")
    there, here = _parameters(original), _parameters(replacement)
    if there != here:
        raise OtherSignatureError(
            f"{name}{inspect.signature(original)} is replaced by {inspect.signature(replacement)}"
        )


def _parameters(function: Any) -> list[tuple[str, Any, bool]]:
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default is not inspect.Parameter.empty) for one in parameters]
