"""Lists of nodes and of array tasks as Slurm prints them. Results are kept, because every snapshot has the same lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from controller.base.errors import SlurmReplyError
from policies.serving.runtime.hostlist import expand
from policies.state.gpu_layout import MOST_GPUS

Item = TypeVar("Item", str, int)

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOST_KEPT = 2_000_000
"""Maximum number of names and numbers in all kept results together: some 150 MB at most."""
_MOST_TASKS = 4_000_001
"""The largest MaxArraySize that Slurm accepts."""
MOST_CPUS = 1 << 16
"""Slurm counts a node's CPUs in 16 bits."""
MOST_NODE_GPUS = 4096
"""More GPUs than any node has for Slurm, MIG instances included."""
_MOST_DIGITS = 18


def _kept(expand_text: Callable[[str], tuple[Item, ...]]) -> Callable[[str], tuple[Item, ...]]:
    """Keep results by text, up to a number of items in all of them.

    A bound on the number of results does not suffice: one array has up to four million tasks, and every reading may list others.
    """
    known: dict[str, tuple[Item, ...]] = {}
    size = 0

    @wraps(expand_text)
    def expanded(text: str) -> tuple[Item, ...]:
        nonlocal size
        if (found := known.get(text)) is not None:
            return found
        found = expand_text(text)
        if (more := len(found) + len(text) // 8 + 1) < _MOST_KEPT // 8:
            if size + more > _MOST_KEPT:
                known.clear()
                size = 0
            known[text] = found
            size += more
        return found

    return expanded


@_kept
def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the names in the order in which Slurm lists them. Raises SlurmReplyError when the text is not a node list."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    try:
        return expand(text)
    except ValueError as error:
        raise SlurmReplyError(str(error)) from error


@_kept
def expand_indices(text: str) -> tuple[int, ...]:
    """Return the array task ids of "0,2-3,10-20:5". A trailing "%5" limits how many run at once and is left out."""
    return _numbers(text, _MOST_TASKS, "array tasks")


@lru_cache(maxsize=4096)
def cpu_count(text: str) -> int:
    """Return the number of CPUs in "0-3,8"; 0 for an empty text. Raises SlurmReplyError, also for more than a node can have."""
    return len(_numbers(text, MOST_CPUS, "CPUs of a node")) if text else 0


@lru_cache(maxsize=4096)
def gpu_mask(text: str) -> int:
    """Return the GPUs in "0-3,5", one bit for each; 0 for an empty text, and where an index does not fit into MOST_GPUS bits.

    Raises SlurmReplyError, also for indices that no node has. With MIG a node may have more than MOST_GPUS GPUs.
    """
    indices = frozenset(_numbers(text, MOST_NODE_GPUS, "GPUs of a node")) if text else frozenset()
    return sum(1 << index for index in indices) if max(indices, default=0) < MOST_GPUS else 0


def _numbers(text: str, most: int, kind: str) -> tuple[int, ...]:
    """Return the numbers of a list; each is less than `most`."""
    numbers: list[int] = []
    for item in text.partition("%")[0].split(","):
        span, _, step = item.partition(":")
        first, dash, last = span.partition("-")
        understood = (
            _is_number(first) and _is_number(last or first) and _is_number(step or "1") and bool(dash) == bool(last)
        )
        found = range(int(first), int(last or first) + 1, int(step or 1) or 1) if understood else range(0)
        if not understood or len(numbers) + len(found) > most or (found and found[-1] >= most):
            raise SlurmReplyError(
                f"not a list of {kind}: {text[:200]!r} (cut off by SLURM_BITSTR_LEN? Headway sets it to 0)"
            )
        numbers.extend(found)
    return tuple(numbers)


def _is_number(text: str) -> bool:
    """Return whether the text is a number that Slurm could have printed."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS
