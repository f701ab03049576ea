"""Processes of a story: each is a family of asyncio tasks that can be killed or stopped at any await, as by a signal.

A killed process does not unwind: no `finally`, no `except` and no context manager of it runs, as after SIGKILL. Its coroutines are
kept until the end of the story, so that Python does not close them earlier.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import weakref
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from typing import Any, TypeVar

from policies.serving.runtime.tasks.supervise import LONGEST_PAUSE_S

_T = TypeVar("_T")
_CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Pause(Enum):
    """The reason why a process stands still."""

    SIGNAL = "SIGSTOP"
    DISK = "it waits for a disk"


class Process:
    """A family of tasks that are killed together. Invariant: after `kill` no instruction of them is carried out.

    It stands still until every reason for that has ended: a disk that answers does not end a SIGSTOP, nor a SIGCONT a write.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.awaits = 0
        """Number of times that one of its tasks was resumed, since the start."""
        self.main: asyncio.Task[Any] | None = None
        self._dies_at: tuple[int, Callable[[], None]] | None = None
        self._stops_at: tuple[int, Callable[[], None]] | None = None
        self._due: list[tuple[int, Callable[[], None]]] = []
        """Number of awaits → calls that are made when so many have been resumed."""
        self._errors: dict[str, tuple[Exception, Callable[[], None]]] = {}
        """Task → error that its next await raises, and what is called then."""
        self._pauses_until_s: dict[str, float] = {}
        """Task → time of the loop until which it may pause after a failure."""
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._on_death: Callable[[], None] = lambda: None
        self._continue: asyncio.Event | None = None
        self._pauses: set[Pause] = set()
        self._requests: dict[asyncio.Task[Any], None] = {}
        """Requests that it has sent, and that have no outcome yet, in their order: a story repeats itself in every run."""
        self._kept: list[Any] = []
        self.resources: tuple[Any, ...] = ()
        """Files that the kernel would close when it is killed."""

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run `main` as the process; the tasks that it creates belong to it."""
        context = contextvars.copy_context()
        context.run(_CURRENT.set, self)
        self.main = asyncio.get_running_loop().create_task(main, name=self.name, context=context)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start another task of the process, as for a request that it serves."""
        context = contextvars.copy_context()
        context.run(_CURRENT.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    @property
    def ended(self) -> bool:
        """True if the process ended by itself."""
        return self.alive and self.main is not None and self.main.done()

    def on_death(self, call: Callable[[], None]) -> None:
        """Call this at the moment of `kill`, before anything else runs."""
        self._on_death = call

    def kill(self) -> None:
        """Kill the process (SIGKILL); no effect on one that has ended."""
        if self.alive and not self.ended:
            self.alive = False
            for request in list(self._requests):
                request.cancel()
            self._on_death()

    def kill_after(self, awaits: int, killed: Callable[[], None] = lambda: None) -> None:
        """Kill the process when so many more awaits of it have been resumed; then call `killed`."""
        self._dies_at = (self.awaits + awaits, killed)

    def stop(self, why: Pause = Pause.SIGNAL) -> None:
        """Stop the process (SIGSTOP)."""
        self._pauses.add(why)
        if self._continue is None:
            self._continue = asyncio.Event()

    def stop_after(self, awaits: int, stopped: Callable[[], None] = lambda: None) -> None:
        """Stop the process when so many more awaits of it have been resumed; then call `stopped`."""
        self._stops_at = (self.awaits + awaits, stopped)

    def at_await(self, awaits: int, call: Callable[[], None]) -> None:
        """Call a function when so many more awaits of it have been resumed."""
        context = contextvars.copy_context()
        self._due.append((self.awaits + awaits, lambda: _call_soon(call, context)))

    def succeed(self, dead: Process) -> None:
        """Take over the calls that were to be made after further awaits of the process before."""
        self._due = [(awaits - dead.awaits, call) for awaits, call in dead._due]

    def fail(self, task: str, error: Exception, raised: Callable[[], None] = lambda: None) -> None:
        """Let the await of the task of that name raise an error, when it is resumed next; then call `raised`.

        Not while it may pause after the failure before: it runs nothing then that could fail.
        """
        if asyncio.get_running_loop().time() > self._pauses_until_s.get(task, -math.inf):
            self._errors[task] = (error, raised)

    def _error_of(self, task: str) -> Exception | None:
        """Return the error that the present await of the task of that name is to raise, once."""
        if task not in self._errors:
            return None
        error, raised = self._errors.pop(task)
        self._pauses_until_s[task] = asyncio.get_running_loop().time() + LONGEST_PAUSE_S
        raised()
        return error

    def runs(self, task: str) -> bool:
        """Return whether a task of that name exists and has not ended."""
        return any(each.get_name() == task and not each.done() for each in self._tasks)

    def cont(self, why: Pause = Pause.SIGNAL) -> None:
        """Continue the process (SIGCONT), unless it stands still for another reason too."""
        self._pauses.discard(why)
        if self._continue is not None and not self._pauses:
            self._continue.set()
            self._continue = None

    @property
    def stopped(self) -> bool:
        """True while the process stands still, for any reason."""
        return self._continue is not None

    def stopped_by(self, why: Pause) -> bool:
        """Return whether the process stands still for that reason."""
        return why in self._pauses

    def _resume(self) -> bool:
        """Count an await; return whether the process is still alive."""
        self.awaits += 1
        if self._due:
            late = self._due
            self._due = [each for each in late if each[0] > self.awaits]
            for _, call in (each for each in late if each[0] <= self.awaits):
                call()
        if self.alive and self._dies_at is not None and self.awaits >= self._dies_at[0]:
            (_, killed), self._dies_at = self._dies_at, None
            self.kill()
            killed()
        if self.alive and self._stops_at is not None and self.awaits >= self._stops_at[0]:
            (_, stopped), self._stops_at = self._stops_at, None
            self.stop()
            stopped()
        return self.alive

    @staticmethod
    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Task factory of the loop of a story: tasks created within a process belong to it."""
        context = options.get("context")
        process = context.get(_CURRENT) if context is not None else _CURRENT.get()
        if process is None:
            return asyncio.Task(coro, loop=loop, **options)
        task = asyncio.Task(_run_within(process, coro), loop=loop, **options)
        process._tasks.add(task)
        return task


async def in_flight(request: Coroutine[Any, Any, _T]) -> _T:
    """Return the outcome of a request that the present process sends to another one.

    The request goes on while its sender stands still, as scontrol does, and the sender gets the outcome afterwards. It ends when
    the sender cancels it or is killed.
    """
    process = _CURRENT.get()
    if process is None:
        return await request
    context = contextvars.copy_context()
    context.run(_CURRENT.set, None)
    sent = asyncio.get_running_loop().create_task(request, context=context)
    process._requests[sent] = None
    sent.add_done_callback(lambda task: process._requests.pop(task, None))
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        sent.cancel()
        raise


def _call_soon(call: Callable[[], None], context: contextvars.Context) -> None:
    asyncio.get_running_loop().call_soon(call, context=context)


async def _run_within(process: Process, coro: Any) -> Any:
    """Run a coroutine of the process, one await after the other."""
    return await _Steps(process, coro)


class _Steps:
    """Awaitable that resumes a coroutine only while its process lives and is not stopped."""

    def __init__(self, process: Process, coro: Any) -> None:
        self._process, self._coro = process, coro

    def __await__(self) -> Generator[Any, Any, Any]:
        process, inner = self._process, self._coro.__await__() if hasattr(self._coro, "__await__") else self._coro
        error: BaseException | None = None
        begun = False
        while True:
            while process._continue is not None:  # stopped: results that have arrived meanwhile wait
                try:
                    yield from process._continue.wait().__await__()
                except BaseException as late:  # noqa: BLE001 - a cancellation reaches it when it goes on
                    error = late
                    if not process.alive:
                        break
            if not process._resume():
                process._kept.append(inner)
                yield from _never()
            if error is None and begun and process._errors:  # before its first await nothing can fail yet
                error = process._error_of(_name())
            begun = True
            try:
                waited = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            try:
                yield waited
            except BaseException as thrown:  # noqa: BLE001 - it is the coroutine's own
                error = thrown


def _name() -> str:
    """Return the name of the task that runs, which a task group of Python 3.11 gives to it only after it was made."""
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


def _never() -> Generator[Any, Any, None]:
    """Wait for ever, whatever is thrown in, except for the end of the story (GeneratorExit)."""
    while True:
        try:
            yield from asyncio.get_running_loop().create_future().__await__()
        except asyncio.CancelledError:
            continue
