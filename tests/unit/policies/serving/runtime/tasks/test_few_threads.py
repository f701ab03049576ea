"""Calls that hang take a few threads, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies.serving.runtime.tasks.few_threads import BusyError, FewThreads
from tests.unit.policies.hanging import HangingService
from tests.unit.policies.processes import ROOT, eventually


def number(name: str) -> int:
    """Return the number of threads with that name."""
    return sum(thread.name == name for thread in threading.enumerate())


async def test_calls_that_hang_take_no_more_threads_and_others_are_refused_until_they_return(tmp_path: Path) -> None:
    service, threads = HangingService(tmp_path / "pipe"), FewThreads("few", 2, 0.05)

    async def refused_at_once() -> bool:
        with pytest.raises(TimeoutError) as caught:
            await threads.run(service)
        return isinstance(caught.value, BusyError) and not threads._waiting

    async def answers() -> bool:
        try:
            return await threads.run(lambda: "an answer") == "an answer"
        except TimeoutError:
            return False

    try:
        # given more calls than threads, none of which returns
        await eventually(refused_at_once)
        assert number("few") == 2
        # then the threads that the event loop has for other calls are free
        assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        threads._within_s = 30.0  # of calls that are answered now
        with service.answering():
            await eventually(answers)
    assert number("few") == 2


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no thread start, as on a machine without room: each would need a stack of 256 TiB."""
    before = threading.stack_size(1 << 48)
    try:
        yield
    finally:
        threading.stack_size(before)


async def test_without_a_thread_a_call_is_refused_and_never_begun() -> None:
    threads, calls = FewThreads("few-none", 2, 60.0), list[int]()
    with no_more_threads(), pytest.raises(BusyError, match="no thread can be started"):
        await threads.run(lambda: calls.append(1))
    assert not threads._waiting
    # Then later calls have their threads, and the refused one was not made
    await threads.run(lambda: calls.append(2))
    assert calls == [2]


async def test_calls_for_which_no_thread_can_be_started_use_those_that_there_are() -> None:
    threads, go_on = FewThreads("few-one", 2, 60.0), threading.Event()
    first = asyncio.create_task(threads.run(lambda: go_on.wait(60)))
    await asyncio.sleep(0)
    with no_more_threads():
        second = asyncio.create_task(threads.run(lambda: "done"))
        await asyncio.sleep(0)
    assert len(threads._waiting) >= 1
    go_on.set()
    assert (await first, await second) == (True, "done")
    assert number("few-one") == 1


async def test_results_and_errors_reach_the_caller() -> None:
    threads = FewThreads("few-answers", 3, 60.0)
    found = await asyncio.gather(*(threads.run(lambda each=each: each * each) for each in range(20)))  # type: ignore[misc]
    assert found == [each * each for each in range(20)]
    assert 1 <= number("few-answers") <= 3
    with pytest.raises(KeyError, match="no user"):
        await threads.run(lambda: {}["no user"])

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await threads.run(leave)


async def test_a_call_whose_caller_is_cancelled_before_its_turn_is_not_made() -> None:
    threads, go_on, begun = FewThreads("few-cancelled", 1, 60.0), threading.Event(), threading.Event()
    made: list[str] = []

    def first() -> None:
        begun.set()
        go_on.wait(60)

    one = asyncio.create_task(threads.run(first))
    await asyncio.to_thread(begun.wait, 60)
    two = asyncio.create_task(threads.run(lambda: made.append("two")))
    await asyncio.sleep(0)
    two.cancel()
    with pytest.raises(asyncio.CancelledError):
        await two
    go_on.set()
    await one
    await threads.run(lambda: made.append("three"))
    assert made == ["three"]


async def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.serving.runtime.tasks.few_threads._IDLE_S", 0.01)
    threads = FewThreads("few-idle", 2, 60.0)
    for _ in range(3):
        await threads.run(lambda: None)

        async def ended() -> bool:
            return number("few-idle") == 0

        await eventually(ended)
        assert threads._threads == 0


HANGS = """
import asyncio, sys
from pathlib import Path
from policies.serving.runtime.tasks.few_threads import FewThreads
from tests.unit.policies.hanging import HangingService
try:
    asyncio.run(FewThreads("few", 1, 0.5).run(HangingService(Path(sys.argv[1]))))
except TimeoutError:
    print("given up")
"""


def test_a_call_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HANGS, str(tmp_path / "pipe")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "given up\n"), done.stderr
