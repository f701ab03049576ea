"""A whole program in this process, with real sockets and in real time: one of its awaits is cut; when it ends it is restarted."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.cancellation.leftovers import is_of_grpc, named_tasks, on_own_loop
from tests.cancellation.points import INJECTED, Cut, Outcome, Point, Points

_RESTART_S = 0.1
_WITHIN_S = 120.0
"""Time for everything to work again after a cut, seconds: with many runs at a time on a busy machine each is slow."""
_END_WITHIN_S = 60.0
_SERVICES = ("admin_pb2_grpc.add_AdminServicer_to_server", "agent_pb2_grpc.add_AgentsServicer_to_server")
"""Functions that give a service of the controller to gRPC."""

Script = Callable[["Program", Path], Coroutine[Any, Any, None]]


class Program:
    """The program under test. Invariant: it runs again soon after it has ended by itself, as under systemd."""

    def __init__(self, points: Points, tasks: Collection[str]) -> None:
        """`tasks`: names of the background tasks that must be alive, each once."""
        self._points = points
        self._tasks = tasks
        self.outcome = Outcome(points.reached, done=False, lines=points.lines)
        self._stopping = False
        self._supervisor: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it, again and again, until `stop`."""
        self._supervisor = asyncio.create_task(self._supervise(run), name="supervisor")

    async def _supervise(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._stopping:
            main = self._points.begin(run())
            await asyncio.wait({main})
            if main.cancelled() or main.exception() is not None:
                self.outcome.exits += 1
                self._check_error(main)
            elif not self._stopping:
                self.outcome.violations.append("the program ended with status 0, though nobody stopped it")
            await asyncio.sleep(_RESTART_S)

    def _check_error(self, main: asyncio.Task[None]) -> None:
        error = None if main.cancelled() else main.exception()
        if (
            error is not None
            and not is_of_grpc({"exception": error})
            and not any(word in repr(error) for word in INJECTED)
        ):
            self.outcome.violations.append(f"the program ended with an error of its own: {error!r}")

    def script_is_over(self) -> None:
        """From now on nothing is cut, until the program is asked to end."""
        self._points.counting = False
        self.outcome.done = self._points.done

    async def until(self, what: str, check: Callable[[], Awaitable[object]]) -> None:
        """Wait until it is true; record when it does not become true."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                while not await _tried(check):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.outcome.violations.append(f"not within {_WITHIN_S:g} s: {what}")

    async def until_tasks_are_alive(self) -> None:
        """Wait until every background task is alive, each once."""

        async def alive() -> bool:
            found = named_tasks()
            return all(found[name] == 1 for name in self._tasks)

        await self.until(f"each of {sorted(self._tasks)} is alive once ({named_tasks()})", alive)

    async def stop(self, ask: Callable[[], object]) -> None:
        """Stop it by `ask`, and check that it ends in time, also when an await of its end is cut."""
        self._stopping = True
        self._points.counting = True
        ask()
        assert self._supervisor is not None, "it was started"
        done, _ = await asyncio.wait({self._supervisor}, timeout=_END_WITHIN_S)
        if not done:
            self.outcome.violations.append(f"it did not end within {_END_WITHIN_S:g} s")
            self._supervisor.cancel()
        self.script_is_over()


async def _tried(check: Callable[[], Awaitable[object]]) -> object:
    try:
        return await check()
    except Exception:  # noqa: BLE001 - what is asked may be away
        return False


def play(script: Script, tasks: Collection[str], at: Point | None, cut: Cut, quick: dict[str, Any]) -> Outcome:
    """Play a script on an event loop of its own. `quick`: what to replace, by dotted name."""
    points = Points(at, cut)
    program = Program(points, tasks)
    quick = quick | {f"protos.headway.v1.{name}": _watching(points, name) for name in _SERVICES}

    async def main() -> Outcome:
        await script(program, Path(folder))
        gc.collect()
        await asyncio.sleep(0.05)
        left = [repr(task) for task in asyncio.all_tasks() if task.get_name() in tasks]
        program.outcome.violations += [f"a task is left: {text}" for text in left]
        return program.outcome

    with tempfile.TemporaryDirectory(prefix="hw-") as folder, _patched(quick):
        return on_own_loop(points, main, is_process=True)


def _watching(points: Points, name: str) -> Callable[[Any, Any], None]:
    """Return the function of that name, which gives a servicer to a server of gRPC, so that the servicer's awaits are counted."""
    module, function = name.split(".")
    give: Callable[[Any, Any], None] = getattr(import_module(f"protos.headway.v1.{module}"), function)
    return lambda servicer, server: give(points.servicer(servicer), server)


@contextmanager
def _patched(quick: dict[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in quick.items():
            stack.enter_context(patch(name, value))
        yield
