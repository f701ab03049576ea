"""Unexpected errors that concern one job, node, row or part of an answer, and no other.

Code that handles all jobs of a cycle, or of an answer, one after the other runs the step of each within `apart`. An error of
Headway's own then leaves out that job alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

import structlog

from controller.base.errors import HeadwayError

log = structlog.get_logger(__name__)

_MOST_KINDS = 200
"""Maximum number of kinds of errors that are remembered as logged; beyond it, all are logged once more."""
_MOST_CULPRITS = 20
"""Maximum number of items that `culprits` leaves out: each of many costs as much as a few computations of all."""

T = TypeVar("T")
R = TypeVar("R")


class LeftOut:
    """Errors that have left out one item. Invariant: each is counted, and the log has each kind once.

    A kind is the part of Headway, the type of the error, and the line that raised it. May be used from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        """Number of errors by part. Bound: the parts, which are words of the code."""
        self._logged: set[tuple[str, str, str]] = set()
        """Kinds that are in the log. Bound: `_MOST_KINDS`."""

    def counts(self) -> dict[str, int]:
        """Return the number of errors by part, since the start of the process."""
        with self._lock:
            return dict(self._counts)

    @property
    def number(self) -> int:
        """Number of all errors, since the start of the process."""
        with self._lock:
            return self._counts.total()

    def forget(self) -> None:
        """Log each kind once more."""
        with self._lock:
            self._logged.clear()

    def note(self, part: str, item: str, error: BaseException) -> None:
        """Count the error, and log it if it is the first one of its kind. `item` names what was left out: the id of a job."""
        kind = (part, type(error).__name__, _line(error.__traceback__))
        with self._lock:
            self._counts[part] += 1
            known = kind in self._logged
            if not known:
                if len(self._logged) >= _MOST_KINDS:
                    self._logged.clear()
                self._logged.add(kind)
        if not known:
            log.error("left_out", part=part, item=item, effect="all others are handled as usual", exc_info=error)


LEFT_OUT = LeftOut()
"""The errors of this process; like the log, there is one."""


class apart:  # noqa: N801 - a context manager, as those of contextlib
    """Context in which an unexpected error leaves out one item: `failed` is true afterwards.

    Errors that Headway raises on purpose pass, because they concern all items: Slurm or the journal is away. A class instead of a
    generator, because it surrounds the step of each job.
    """

    __slots__ = ("_item", "_part", "failed")

    def __init__(self, part: str, item: str = "") -> None:
        self._part = part
        self._item = item
        self.failed = False

    def __enter__(self) -> apart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, HeadwayError):
            return False
        LEFT_OUT.note(self._part, self._item, error)
        self.failed = True
        return True


def each(part: str, items: Iterable[T], do: Callable[[T], R], name: Callable[[T], str] = str) -> list[R]:
    """Return the results of `do` for these items, without those that led to an unexpected error. `name` names an item."""
    found: list[R] = []
    for item in items:
        with apart(part, name(item)):
            found.append(do(item))
    return found


def each_or(
    part: str, items: Sequence[T], do: Callable[[T], R], otherwise: R, name: Callable[[T], str] = str
) -> list[R]:
    """Return the result of `do` for each item; `otherwise` for one that leads to an unexpected error. For items that seldom do: it
    is as fast as a loop without a guard."""
    try:
        return [do(item) for item in items]
    except HeadwayError:
        raise
    except Exception:  # noqa: BLE001 - the item is found, and the error is logged, below
        found = []
    for item in items:
        value = otherwise
        with apart(part, name(item)):
            value = do(item)
        found.append(value)
    return found


def those(part: str, items: Iterable[T], test: Callable[[T], bool], name: Callable[[T], str] = str) -> list[T]:
    """Return the items for which the test is true, without those that led to an unexpected error."""
    return [item for item, true in each(part, items, lambda item: (item, test(item)), name) if true]


async def together_or_apart(
    part: str, items: Sequence[T], do: Callable[[Sequence[T]], Awaitable[object]], name: Callable[[T], str] = str
) -> list[T]:
    """Do it for all items in one step; after an unexpected error, for each alone, which must be harmless for those that are done.
    Returns the items that lead to the error."""
    try:
        await do(items)
    except HeadwayError:
        raise
    except Exception as error:  # noqa: BLE001 - one item must not stop all others
        if len(items) == 1:
            LEFT_OUT.note(part, name(items[0]), error)
            return list(items)
    else:
        return []
    return [one for item in items for one in await together_or_apart(part, [item], do, name)]


def culprits(
    part: str, items: Sequence[T], do: Callable[[Sequence[T]], object], name: Callable[[T], str] = str
) -> list[T]:
    """Return the items with which `do` leads to an unexpected error, also each alone. They are found by halves, so that a few of
    many cost little. Raises the error if it comes without any item, or with more than `_MOST_CULPRITS`: then it concerns all.
    """
    do(items[:0])
    found: list[T] = []
    left = [items]
    while left:
        some = left.pop()
        try:
            do(some)
        except HeadwayError:
            raise
        except Exception as error:
            half = len(some) // 2
            if half:
                left += [some[half:], some[:half]]
                continue
            if len(found) >= _MOST_CULPRITS:
                raise
            LEFT_OUT.note(part, name(some[0]), error)
            found.append(some[0])
    return found


def _line(trace: TracebackType | None) -> str:
    """Return the file and line that raised an error."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
