"""One thread for an event loop."""

from __future__ import annotations

import asyncio
import threading

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
