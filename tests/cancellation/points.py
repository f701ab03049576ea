"""Counts the awaits of a program's tasks, and cuts one of them: what the task waits for is cancelled, or fails with an error."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import _AsyncGeneratorContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Any

_ROOT = Path(__file__).parents[2]
_OURS = tuple(str(_ROOT / name) for name in ("controller", "nodeagent", "policies"))
_SHARED = ("policies/serving/runtime/", "controller/slurm/")
"""Code that many parts share: the name of an await there includes its callers."""
_MANAGERS = tuple(
    method.__code__ for method in (_AsyncGeneratorContextManager.__aenter__, _AsyncGeneratorContextManager.__aexit__)
)
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
class Outcome:
    """Result of one run."""

    reached: list[Point]
    done: bool
    """The await was reached, and cut."""
    exits: int = 0
    """How often the program ended by itself."""
    violations: list[str] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)
    """File and line of every function of Headway that was seen waiting."""


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

    lines: set[tuple[str, int]] = field(default_factory=set)
    """File and line of every function of Headway that was seen waiting, also of those that wait for another one."""

    async def wrap(self, coro: Any) -> Any:
        """Run a coroutine, and count its awaits."""
        return await _Watched(self, coro)

    def servicer(self, servicer: Any) -> Any:
        """Return a servicer of gRPC whose awaits are counted, if the program under test has made it.

        Its methods run in coroutines of gRPC, which are compiled and do not show what they wait for.
        """
        return _Servicer(self, servicer) if _UNDER_TEST.get() else servicer

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
        if not self.counting:
            return False
        waiting = tuple(_waiting(coro))
        if (where := _where(waiting)) is None:
            return False
        self.lines.update((path, line) for path, line, _ in waiting)
        self._times[where] += 1
        point = Point(where, self._times[where])
        self.reached.append(point)
        if self.done or point != self.at:
            return False
        self.done = True
        return True


class _Watched:
    """Awaitable that resumes a coroutine, and cuts it at the chosen await."""

    def __init__(self, points: Points, coro: Any, source: Any = None) -> None:
        """`source`: the generator that an item is awaited of; None = the coroutine itself."""
        self._points, self._coro = points, coro
        self._source = coro if source is None else source

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
            cut = points.is_next(self._source)
            if cut:
                _cancel(waited, points.cut)
            try:
                yield waited
            except BaseException as thrown:  # noqa: BLE001 - it is the coroutine's own
                error = thrown
            if cut and points.cut is not Cut.ENDED and not _ends():
                error = _ERRORS[points.cut]()


class _Servicer:
    """A servicer whose methods are watched."""

    def __init__(self, points: Points, servicer: Any) -> None:
        self._points, self._servicer = points, servicer

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._servicer, name)
        if inspect.isasyncgenfunction(method):

            async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
                answers = method(request, context)
                try:
                    while True:
                        try:
                            answer = await _Watched(self._points, answers.__anext__(), answers)
                        except StopAsyncIteration:
                            return
                        yield answer
                finally:
                    await answers.aclose()

            return stream

        async def call(request: Any, context: Any) -> Any:
            return await _Watched(self._points, method(request, context))

        return call


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


def _waiting(coro: Any) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and name of each function of Headway that waits, the outermost first."""
    while coro is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coro, f"{kind}_code")), "cr")
        code: CodeType | None = getattr(coro, f"{kind}_code", None)
        if code is not None and code.co_filename.startswith(_OURS):
            frame = getattr(coro, f"{kind}_frame")
            line = code.co_firstlineno if frame is None else frame.f_lineno
            yield str(Path(code.co_filename).relative_to(_ROOT)), line, code.co_qualname
        coro = _generator_of(coro) or getattr(coro, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _generator_of(coro: Any) -> AsyncGenerator[Any, Any] | None:
    """Return the generator behind a context manager that is entered or left: Python does not show that the manager waits for it."""
    if getattr(coro, "cr_code", None) not in _MANAGERS or coro.cr_frame is None:
        return None
    generator: AsyncGenerator[Any, Any] = coro.cr_frame.f_locals["self"].gen
    return generator


def _where(waiting: Iterable[tuple[str, int, str]]) -> str | None:
    """Return the innermost function of Headway that waits, as text; None where none does."""
    found = None
    for path, line, name in waiting:
        here = f"{path}:{line} {name}"
        found = f"{found} -> {here}" if found is not None and here.startswith(_SHARED) else here
    return found
