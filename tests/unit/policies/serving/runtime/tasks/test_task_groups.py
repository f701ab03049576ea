"""Short tasks end with their owner, and none fails unnoticed."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from policies.serving.runtime.tasks.supervise import Tasks
from policies.serving.runtime.tasks.task_groups import Handlers, first_of, task_group


async def fails() -> None:
    raise ZeroDivisionError("oh")


async def note_end(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def test_the_first_task_that_ends_stops_the_others() -> None:
    ended: list[str] = []
    await first_of(asyncio.sleep(0.01), note_end(ended, "one"), note_end(ended, "two"))
    assert sorted(ended) == ["one", "two"]


async def test_the_first_error_is_raised_by_itself() -> None:
    ended: list[str] = []
    with pytest.raises(ZeroDivisionError, match="oh"):
        await first_of(note_end(ended, "one"), fails())
    assert ended == ["one"]


async def test_a_task_that_others_cancel_does_not_count_as_a_normal_end() -> None:
    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    ended: list[str] = []
    with pytest.raises(asyncio.CancelledError):
        await first_of(note_end(ended, "one"), cancelled())
    assert ended == ["one"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_when_the_owner_is_cancelled_all_end() -> None:
    ended: list[str] = []
    owner = asyncio.create_task(first_of(note_end(ended, "one"), note_end(ended, "two")))
    await asyncio.sleep(0.01)
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    assert sorted(ended) == ["one", "two"]


async def test_a_group_raises_its_first_error_by_itself_and_ends_the_others() -> None:
    ended: list[str] = []
    with pytest.raises(ZeroDivisionError):
        async with task_group() as group:
            group.create_task(note_end(ended, "one"))
            await asyncio.sleep(0)
            group.create_task(fails())
            await asyncio.Event().wait()
    assert ended == ["one"]


async def test_a_handler_that_fails_or_is_cancelled_ends_only_its_own_connection() -> None:
    tasks, broken, ended = Tasks(), list[str](), list[str]()
    handlers = Handlers("relay", tasks.counting("relay"))
    assert tasks.failures == {"relay": 0}
    with capture_logs() as logs:
        handlers.begin(note_end(ended, "one"), lambda: broken.append("one"))
        handlers.begin(fails(), lambda: broken.append("two"))
        handlers.begin(asyncio.sleep(0), lambda: broken.append("three"))
        await asyncio.sleep(0.01)
        assert (broken, ended) == (["two"], [])
        await handlers.close()
    await asyncio.sleep(0)
    assert (broken, ended) == (["two", "one"], ["one"])
    assert [entry["task"] for entry in logs] == ["relay"]
    assert tasks.failures == {"relay": 1}
    assert "relay failed 1 time in a row" in tasks.troubles[0]
    assert "ZeroDivisionError" in tasks.troubles[0]


async def test_a_handler_that_is_cancelled_before_its_first_step_is_reported() -> None:
    tasks, broken = Tasks(), list[str]()
    handlers = Handlers("relay", tasks.counting("relay"))
    handlers.begin(asyncio.sleep(1), lambda: broken.append("one"))
    (task,) = handlers._tasks
    task.cancel()
    with capture_logs() as logs:
        await asyncio.sleep(0.01)
    assert broken == ["one"]
    assert "cancelled by others" in logs[0]["problem"]
    assert tasks.failures == {"relay": 1}


@pytest.mark.parametrize("fails_first", [True, False])
async def test_a_cancellation_counts_though_a_task_fails_at_the_same_moment(fails_first: bool) -> None:
    # given an owner that tries again after every error
    fail, tries = asyncio.Event(), 0

    async def work() -> None:
        await fail.wait()
        raise ZeroDivisionError("oh")

    async def owner() -> None:
        nonlocal tries
        while True:
            tries += 1
            try:
                await first_of(work())
            except ZeroDivisionError:
                fail.clear()

    task = asyncio.create_task(owner())
    await asyncio.sleep(0.01)

    # when it is cancelled in the turn of the loop in which the work fails
    if fails_first:
        fail.set()
        await asyncio.sleep(0)
        task.cancel()
    else:
        task.cancel()
        fail.set()

    # then it ends
    done, _ = await asyncio.wait({task}, timeout=10)
    try:
        assert done, "the cancellation was lost"
        assert task.cancelled()
    finally:
        task.cancel()
    assert tries == 1


async def test_a_timeout_around_a_task_that_fails_at_the_same_moment_is_a_timeout_or_the_error() -> None:
    async def work() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError("oh")

    for _ in range(20):
        with pytest.raises((TimeoutError, ZeroDivisionError)):
            async with asyncio.timeout(0.01):
                await first_of(work())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
