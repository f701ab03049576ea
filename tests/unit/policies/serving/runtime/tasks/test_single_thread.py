"""One thread for an event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from policies.serving.runtime.tasks.single_thread import Worker


async def test_an_object_is_closed_in_its_thread_after_the_work_of_a_cancelled_caller() -> None:
    done: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        done.append(f"read in {threading.current_thread().name}")

    worker = Worker("store")
    caller = asyncio.create_task(worker.run(work))
    await asyncio.to_thread(begun.wait, 60)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    closed = threading.Event()

    def close() -> None:
        done.append(f"closed in {threading.current_thread().name}")
        closed.set()

    worker.end(close)
    assert done == []
    go_on.set()
    await asyncio.to_thread(closed.wait, 60)
    assert done == ["read in store", "closed in store"]


async def test_callers_that_give_up_leave_nothing_in_the_queue_of_a_thread_that_hangs() -> None:
    class Request:
        """Stands for a snapshot that a call has brought."""

    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(250)

    # Given a policy, or a disk, that does not answer
    worker = Worker("policy")
    hanging = asyncio.create_task(worker.run(hang))
    await asyncio.to_thread(begun.wait, 60)

    # When callers wait for it and give up, thousands of times
    left: list[weakref.ref[Request]] = []
    for _ in range(10_000):
        request = Request()
        left.append(weakref.ref(request))
        caller = asyncio.create_task(worker.run(lambda request=request: request))  # type: ignore[misc]
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        del request, caller
    await asyncio.sleep(0)
    gc.collect()

    # Then nothing is kept of them, and the thread goes on with the next
    assert sum(each() is not None for each in left) <= 1
    next_one = asyncio.create_task(worker.run(threading.current_thread))
    go_on.set()
    await hanging
    assert (await next_one).name == "policy"
    worker.end()


async def test_no_work_is_done_after_the_last() -> None:
    done: list[str] = []
    worker, closed = Worker("store"), threading.Event()

    def close() -> None:
        done.append("closed")
        closed.set()

    worker.end(close)
    late = asyncio.create_task(worker.run(lambda: done.append("late")))
    await asyncio.to_thread(closed.wait, 60)
    worker._thread.join(60)
    assert done == ["closed"]
    late.cancel()
