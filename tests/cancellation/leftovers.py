"""Leftovers of a run: open files, threads and processes that were not there before, and errors that no code has handled."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.campaign.play import captured_errors
from tests.cancellation.points import INJECTED, Outcome, Points

_LEAVES_S = 60.0
_FREE = ("asyncio_", "ThreadPoolExecutor", "Thread-", "name-service", "addresses")
"""Threads that belong to no part: of executors, which end with the loop, of gRPC, and the few for look-ups, which end when idle."""


def on_own_loop(
    points: Points, main: Callable[[], Coroutine[Any, Any, Outcome]], *, is_process: bool = False
) -> Outcome:
    """Run on an event loop of its own, and add to the violations what is left behind and what no code has handled.

    `is_process`: the end of the program under test stands for the end of a process, whose files the kernel closes.
    """
    complaints: list[str] = []

    def complain(_loop: object, context: Mapping[str, Any]) -> None:
        if not is_of_grpc(context):
            complaints.append(complaint(context))

    with captured_errors() as errors:
        loop = asyncio.new_event_loop()
        loop.set_task_factory(points.factory)
        loop.set_exception_handler(complain)
        before = held()
        try:
            asyncio.set_event_loop(loop)
            outcome = loop.run_until_complete(main())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
    gc.collect()
    outcome.violations += [text for text in errors if not any(word in text for word in INJECTED)]
    outcome.violations += complaints + left_for_good(before, ended=is_process and outcome.exits > 0)
    return outcome


def held() -> Counter[str]:
    """Open files and pipes, threads and children of this process."""
    found = Counter(f"thread {each.name}" for each in threading.enumerate() if not each.name.startswith(_FREE))
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found[re.sub(r":\[\d+\]", "", str(each.readlink()))] += 1  # sockets and pipes have numbers
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found["child"] += len((task / "children").read_text().split())
    return found


def left_behind(before: Counter[str], *, ended: bool) -> list[str]:
    """Return what has been added since. `ended`: the program ended by itself, and the kernel would close its files and threads."""
    names = sorted((held() - before).elements())
    return [f"left behind: {name}" for name in names if name == "child" or not ended]


def left_for_good(before: Counter[str], *, ended: bool) -> list[str]:
    """Return what has been added since and stays: gRPC closes its files in threads of its own, a moment after its channels."""
    deadline = time.monotonic() + _LEAVES_S
    while (found := left_behind(before, ended=ended)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def named_tasks() -> Counter[str]:
    """Tasks of this loop that have a name of their own."""
    names = (task.get_name() for task in asyncio.all_tasks() if not task.done())
    return Counter(name for name in names if not name.startswith("Task-"))


def complaint(context: Mapping[str, Any]) -> str:
    """Return what the event loop's exception handler receives, as text."""
    about = context.get("task") or context.get("future") or ""
    return f"{context.get('message')}: {context.get('exception')!r} {about}"


def is_of_grpc(context: Mapping[str, Any]) -> bool:
    """Return whether an error comes from gRPC's own tasks: it does not expect that its calls are cancelled while they begin."""
    trace = getattr(context.get("exception"), "__traceback__", None)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and "grpc" in trace.tb_frame.f_code.co_filename
