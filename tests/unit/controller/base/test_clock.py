"""Virtual time: deterministic, monotone, and out of the way of work that is not done."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.clock import Clock, RealClock, VirtualClock, wait_for_event


def test_both_are_clocks() -> None:
    assert isinstance(RealClock(), Clock)
    assert isinstance(VirtualClock(), Clock)


async def test_sleepers_wake_in_order_of_time_then_of_arrival() -> None:
    clock, woken = VirtualClock(0.0), list[tuple[str, float]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 5.0), ("first", 2.0), ("second", 2.0)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(3.0)
        assert woken == [("first", 2.0), ("second", 2.0)]
        assert clock.now() == 3.0
        await clock.advance(10.0)
    assert woken[-1] == ("late", 5.0)
    assert clock.now() == 13.0


async def test_tasks_that_a_sleeper_starts_run_before_the_next_sleeper_wakes() -> None:
    clock, seen = VirtualClock(0.0), list[str]()

    async def chain() -> None:
        await clock.sleep(1.0)
        for _ in range(200):
            await asyncio.sleep(0)
        seen.append(f"chain at {clock.now():g}")

    async def after() -> None:
        await clock.sleep(1.5)
        seen.append(f"after at {clock.now():g}")

    async with asyncio.TaskGroup() as group:
        group.create_task(chain())
        group.create_task(after())
        await clock.advance(2.0)
    assert seen == ["chain at 1", "after at 1.5"]


async def test_run_jumps_from_sleeper_to_sleeper() -> None:
    clock = VirtualClock(0.0)

    async def a_day() -> float:
        for _ in range(24):
            await clock.sleep(3600.0)
        return clock.now()

    assert await clock.run(a_day()) == 86400.0


async def test_run_lets_errors_through_and_cancels_what_it_ran() -> None:
    clock = VirtualClock(0.0)

    async def breaks() -> None:
        await clock.sleep(1.0)
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await clock.run(breaks())


async def test_cancelled_sleepers_do_not_move_time() -> None:
    clock = VirtualClock(0.0)
    task = asyncio.create_task(clock.sleep(10.0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    async def short() -> float:
        await clock.sleep(1.0)
        return clock.now()

    assert await clock.run(short()) == 1.0


async def test_waiting_for_an_event_ends_with_the_event_or_the_time() -> None:
    clock, event = VirtualClock(0.0), asyncio.Event()

    async def sets() -> None:
        await clock.sleep(3.0)
        event.set()

    async def story() -> tuple[bool, float, bool, float]:
        early = await wait_for_event(clock, event, 2.0)
        early_s = clock.now()
        task = asyncio.create_task(sets())
        late = await wait_for_event(clock, event, 60.0)
        late_s = clock.now()
        await task
        return early, early_s, late, late_s

    assert await clock.run(story()) == (False, 2.0, True, 5.0)


async def test_a_task_that_never_waits_is_an_error_not_a_hang() -> None:
    clock = VirtualClock(0.0)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="without ever waiting"):
        await clock.run(spins())
