"""Defects that were mended, and can be put back: a campaign that does not find them is not worth its time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

DEFECTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
