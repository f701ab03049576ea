"""Several patches as one context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


@contextmanager
def patched(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """Apply all of them for as long as the context lasts."""
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield
