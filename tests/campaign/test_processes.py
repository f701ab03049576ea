"""Processes of a story die and stand still as real ones do, and time passes only when nothing else can happen."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.campaign.play import clear, quiet
from tests.campaign.world.processes import Pause, Process
from tests.campaign.world.virtual_loop import DeadlockError, VirtualLoop


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end on a virtual loop whose tasks may be processes."""
    loop = VirtualLoop()
    loop.set_task_factory(Process.factory)
    with quiet():
        try:
            return loop.run_until_complete(work)
        finally:
            clear(loop)
            loop.close()
            gc.collect()  # here, where what the dead would still say is kept quiet


def test_days_pass_at_once_and_in_order() -> None:
    seen: list[tuple[str, float]] = []

    async def wake(name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        seen.append((name, asyncio.get_running_loop().time()))

    async def story() -> None:
        await asyncio.gather(wake("late", 86400.0), wake("early", 1.0))

    begun_s = time.monotonic()
    run(story())
    assert seen == [("early", 1.0), ("late", 86400.0)]
    assert time.monotonic() - begun_s < 60.0


def test_time_stands_still_while_a_thread_works() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(time.sleep, 0.2)
        return loop.time()

    assert run(story()) < 0.05


def test_a_story_that_can_never_go_on_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.campaign.world.virtual_loop._DEADLOCK_S", 0.05)

    async def story() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(story())


@pytest.mark.parametrize("awaits", range(1, 8))
def test_nothing_of_a_killed_process_is_carried_out(awaits: int) -> None:
    done: list[str] = []

    async def child() -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                done.append("child")
        finally:
            done.append("child's finally")

    async def main() -> None:
        task = asyncio.create_task(child())
        try:
            while True:
                await asyncio.sleep(1.5)
                done.append("main")
        finally:
            done.append("main's finally")
            task.cancel()

    async def story() -> tuple[int, list[str]]:
        process = Process("p")
        process.kill_after(awaits)
        process.start(main())
        while process.alive:
            await asyncio.sleep(0.1)
        before = len(done)
        await asyncio.sleep(60.0)
        return before, list(done)

    before, after = run(story())
    assert len(after) == before
    assert not any("finally" in text for text in after)


async def ticking(seen: list[float]) -> None:
    """Note the time once a second."""
    while True:
        await asyncio.sleep(1.0)
        seen.append(asyncio.get_running_loop().time())


def test_a_stopped_process_goes_on_where_it_was() -> None:
    seen: list[float] = []

    async def story() -> None:
        process = Process("p")
        process.start(ticking(seen))
        await asyncio.sleep(2.5)
        process.stop()
        await asyncio.sleep(10.0)
        process.cont()
        await asyncio.sleep(1.2)

    run(story())
    assert seen == [1.0, 2.0, 12.5, 13.5]


def test_a_process_stands_still_until_every_reason_for_it_has_ended() -> None:
    seen: list[float] = []

    async def story() -> None:
        process = Process("p")
        process.start(ticking(seen))
        for first, last in ((Pause.SIGNAL, Pause.DISK), (Pause.DISK, Pause.SIGNAL)):
            process.stop(first)
            process.stop(last)
            await asyncio.sleep(5.5)
            process.cont(first)
            await asyncio.sleep(4.0)
            assert process.stopped
            process.cont(last)
            assert not process.stopped
            await asyncio.sleep(1.2)

    run(story())
    assert [round(at, 3) for at in seen] == [10.5, 20.2, 21.2]


def test_a_process_is_stopped_at_the_await_of_that_number() -> None:
    seen: list[float] = []

    async def main() -> None:
        while True:
            await asyncio.sleep(1.0)
            seen.append(asyncio.get_running_loop().time())

    async def story() -> list[bool]:
        process, loop, continued = Process("p"), asyncio.get_running_loop(), []
        process.stop_after(3, lambda: continued.append(loop.call_later(10.0, process.cont)))
        process.start(main())
        stopped = []
        for _ in range(3):
            await asyncio.sleep(5.2)
            stopped.append(process.stopped)
        return stopped

    assert run(story()) == [True, True, False]
    assert seen[:3] == [1.0, 2.0, 12.0]


def test_a_process_that_has_ended_is_not_there_to_be_killed() -> None:
    async def main() -> None:
        await asyncio.sleep(1.0)

    async def story() -> bool:
        process, deaths = Process("p"), []
        process.on_death(lambda: deaths.append(1))
        process.start(main())
        await asyncio.sleep(2.0)
        process.kill()
        return process.ended and not deaths

    assert run(story())


def test_a_task_of_a_group_fails_by_its_name() -> None:
    """A task group of Python 3.11 names its tasks only after it has made them."""
    process = Process("p")
    failed: list[str] = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
        except OSError as error:
            failed.append(str(error))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(), name="worker")
            other = group.create_task(asyncio.sleep(5.0), name="other")
        assert other.done()

    async def story() -> None:
        process.start(main())
        await asyncio.sleep(1.5)
        assert process.runs("worker")
        process.fail("worker", OSError("injected"))
        await asyncio.sleep(5.0)

    run(story())
    assert failed == ["injected"]
