"""Counts the awaits of a program's tasks, and cuts one of them: what the task waits for is cancelled, or fails with an error."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Any

_ROOT = Path(__file__).parents[2]
_OURS = tuple(str(_ROOT / name) for name in ("controller", "nodeagent", "policies"))
_SHARED = "policies/serving/runtime/"
"""Code that many parts share: the name of an await there includes its caller."""
_UNDER_TEST: contextvars.ContextVar[bool] = contextvars.ContextVar("under_test", default=False)
INJECTED = (
    "InjectedError",
    "InjectedOSError",
    "CancelledError",
    "it was cancelled, or something that it waited for was",
)
"""Words of which the report of an injected error has one."""


class InjectedError(RuntimeError):
    """An error that no code expects."""


class InjectedOSError(OSError):
    """An error as the kernel gives it."""


class Cut(Enum):
    """Kinds of interruption at an await."""

    CANCELLED = "something that the task waits for is cancelled by others"
    ENDED = "the task itself is cancelled by others"
    OS_ERROR = "what the task waits for fails with an OSError"
    BUG = "what the task waits for fails with an error that nobody expects"


_ERRORS: dict[Cut, Callable[[], BaseException]] = {
    Cut.CANCELLED: asyncio.CancelledError,
    Cut.OS_ERROR: lambda: InjectedOSError(5, "injected"),
    Cut.BUG: lambda: InjectedError("injected"),
}


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One await of a run."""

    where: str
    """File, line and function of the innermost frame of Headway that waits."""
    nth: int
    """From 1, how often a task has waited there."""

    def __str__(self) -> str:
        return f"{self.where}, time {self.nth}"


@dataclass(slots=True)
class Points:
    """Awaits of the program under test. Invariant: at most one is cut, `at`."""

    at: Point | None = None
    cut: Cut = Cut.CANCELLED
    counting: bool = True
    reached: list[Point] = field(default_factory=list)
    done: bool = False
    """`at` was reached, and cut."""
    _times: Counter[str] = field(default_factory=Counter)

    async def wrap(self, coro: Any) -> Any:
        """Run a coroutine, and count its awaits."""
        return await _Watched(self, coro)

    def begin(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the program under test: this task, and those that it begins, are counted."""
        context = contextvars.copy_context()
        context.run(_UNDER_TEST.set, True)
        return asyncio.get_running_loop().create_task(main, name="main", context=context)

    def factory(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Task factory of the loop."""
        context = options.get("context")
        if _UNDER_TEST.get() if context is None else context.get(_UNDER_TEST, False):
            coro = self.wrap(coro)
        return asyncio.Task(coro, loop=loop, **options)

    def is_next(self, coro: Any) -> bool:
        """Count an await of Headway's own code; return whether it is to be cut."""
        if not self.counting or (where := _where(coro)) is None:
            return False
        self._times[where] += 1
        point = Point(where, self._times[where])
        self.reached.append(point)
        if self.done or point != self.at:
            return False
        self.done = True
        return True


class _Watched:
    """Awaitable that resumes a coroutine, and cuts it at the chosen await."""

    def __init__(self, points: Points, coro: Any) -> None:
        self._points, self._coro = points, coro

    def __await__(self) -> Generator[Any, Any, Any]:
        points = self._points
        inner = self._coro.__await__() if hasattr(self._coro, "__await__") else self._coro
        error: BaseException | None = None
        while True:
            try:
                waited = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            cut = points.is_next(self._coro)
            if cut:
                _cancel(waited, points.cut)
            try:
                yield waited
            except BaseException as thrown:  # noqa: BLE001 - it is the coroutine's own
                error = thrown
            if cut and points.cut is not Cut.ENDED and not _ends():
                error = _ERRORS[points.cut]()


def _cancel(waited: asyncio.Future[Any] | None, cut: Cut) -> None:
    task = asyncio.current_task()
    if cut is Cut.ENDED and task is not None:
        task.cancel()
    elif waited is not None:  # None: it only lets others run
        waited.cancel()


def _ends() -> bool:
    """Return whether the task was cancelled as well, by its owner."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _where(coro: Any) -> str | None:
    """Return the innermost frame of Headway that waits, as text; None where none does."""
    found = None
    while coro is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coro, f"{kind}_code")), "cr")
        code: CodeType | None = getattr(coro, f"{kind}_code", None)
        if code is not None and code.co_filename.startswith(_OURS):
            frame = getattr(coro, f"{kind}_frame")
            line = code.co_firstlineno if frame is None else frame.f_lineno
            here = f"{Path(code.co_filename).relative_to(_ROOT)}:{line} {code.co_qualname}"
            found = f"{found} -> {here}" if found is not None and here.startswith(_SHARED) else here
        coro = getattr(coro, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
    return found
