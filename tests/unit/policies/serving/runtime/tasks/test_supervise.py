"""Background tasks that fail are counted, logged once a streak, and started again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from controller.base.clock import VirtualClock
from policies.serving.runtime.tasks.supervise import LONGEST_PAUSE_S, STEADY_S, TROUBLE_S, Tasks


def watched() -> tuple[VirtualClock, Tasks]:
    clock = VirtualClock()
    return clock, Tasks(clock.sleep, clock.monotonic, clock.now)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def cancelled_below() -> None:
    """Wait for a task that another task cancels."""
    inner = asyncio.ensure_future(for_ever())
    asyncio.get_running_loop().call_soon(inner.cancel)
    await inner


async def fails() -> None:
    raise ZeroDivisionError("oh")


async def ends() -> None:
    pass


@pytest.mark.parametrize(
    ("failure", "said"), [(fails, "ZeroDivisionError: oh"), (ends, "it ended"), (cancelled_below, "cancelled")]
)
async def test_a_task_that_fails_once_is_begun_again(failure: Callable[[], Awaitable[None]], said: str) -> None:
    clock, tasks = watched()
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await (failure() if begun == 1 else for_ever())

    with capture_logs() as logs:
        async with tasks.running("one", work):
            await clock.advance(10)
            assert (begun, tasks.failures["one"]) == (2, 1)
            (trouble,) = tasks.troubles
            assert "task one failed 1 time in a row, last at 2023-11-14T22:13:20+00:00 with " in trouble
            assert said in trouble
            await clock.advance(TROUBLE_S)
            assert tasks.troubles == ()
    assert [entry["task"] for entry in logs if entry["event"] == "task_failed"] == ["one"]


async def test_pauses_grow_to_a_bound_and_one_streak_is_one_line_in_the_log() -> None:
    clock, tasks = watched()
    times: list[float] = []

    async def work() -> None:
        times.append(clock.now())
        await fails()

    with capture_logs() as logs:
        async with tasks.running("one", work):
            await clock.advance(1000)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    wholes = [1, 2, 4, 8, 16, 32, *[LONGEST_PAUSE_S] * len(pauses[6:])]
    assert all(whole / 2 <= pause <= whole for pause, whole in zip(pauses, wholes, strict=True))
    assert (
        len({pause / whole for pause, whole in zip(pauses, wholes, strict=True)}) > 1
    )  # many agents do not restart in step
    assert len(logs) == 1
    assert tasks.failures["one"] == len(times)


async def test_a_failure_after_a_long_run_without_failures_begins_a_new_streak() -> None:
    clock, tasks = watched()

    async def work() -> None:
        await clock.sleep(STEADY_S + 1)
        await fails()

    with capture_logs() as logs:
        async with tasks.running("one", work):
            await clock.advance(3 * (STEADY_S + 3))
    assert len(logs) == tasks.failures["one"] == 3


async def test_a_vital_task_is_not_begun_again() -> None:
    clock, tasks = watched()
    reported: list[Exception] = []
    async with tasks.running("lease", fails, failed=reported.append):
        await clock.advance(100)
    assert [str(error) for error in reported] == ["oh"]
    assert tasks.failures["lease"] == 1


async def test_a_task_that_may_end_ends_and_all_end_with_their_context() -> None:
    clock, tasks = watched()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await for_ever()
        finally:
            ended.set()

    async with tasks.running("one", ends, may_end=True), tasks.running("two", work):
        await clock.advance(100)
    assert ended.is_set()
    assert tasks.failures == {"one": 0, "two": 0}


async def test_a_cancellation_that_its_owner_did_not_ask_for_ends_no_task() -> None:
    clock, tasks = watched()
    running: list[asyncio.Task[object]] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        await for_ever()

    async with tasks.running("one", work):
        await clock.advance(1)
        running[0].cancel()
        await clock.advance(10)
        assert (len(running), tasks.failures["one"], running[-1].cancelling()) == (2, 1, 0)
        assert not running[-1].done()


async def test_a_cancellation_during_the_pause_begins_the_task_at_once() -> None:
    clock, tasks = watched()
    begun: list[float] = []

    async def work() -> None:
        begun.append(clock.now())
        task = asyncio.current_task()
        assert task is not None
        if len(begun) == 1:
            asyncio.get_running_loop().call_later(0.01, task.cancel)
            await fails()
        await for_ever()

    async with tasks.running("one", work):
        await clock.advance(0)
        await asyncio.sleep(0.05)
        await clock.advance(0)
        assert begun == [clock.now()] * 2


async def test_a_task_that_fails_while_it_is_ended_does_not_hold_up_the_end() -> None:
    clock, tasks = watched()

    async def work() -> None:
        try:
            await for_ever()
        finally:
            await fails()

    async with asyncio.timeout(60):
        async with tasks.running("one", work):
            await clock.advance(1)
    assert tasks.failures["one"] == 1


async def test_an_error_within_the_context_is_raised_as_it_is() -> None:
    _, tasks = watched()
    with pytest.raises(ZeroDivisionError) as raised:
        async with tasks.running("one", for_ever), tasks.running("two", for_ever):
            raise ZeroDivisionError from KeyError("cause")
    assert isinstance(raised.value.__cause__, KeyError)


async def test_each_new_problem_of_a_streak_is_logged() -> None:
    clock, tasks = watched()
    problems = iter(["disk full", "disk full", "no such file", "no such file"])

    async def work() -> None:
        if (problem := next(problems, None)) is None:
            await for_ever()
        raise OSError(problem)

    with capture_logs() as logs:
        async with tasks.running("one", work):
            await clock.advance(100)
    assert [entry["problem"] for entry in logs] == ["OSError: disk full", "OSError: no such file"]
    assert tasks.last["one"].in_a_row == 4
