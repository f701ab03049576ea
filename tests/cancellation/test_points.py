"""A cut comes at the chosen await, and does to the task what its kind says."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.clock import RealClock
from tests.cancellation.points import Cut, InjectedError, InjectedOSError, Point, Points


async def waits(seen: list[str]) -> None:
    """Waits in code of Headway, twice."""
    for number in (1, 2):
        try:
            await RealClock().sleep(0.001)
            seen.append(f"{number} slept")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            seen.append(f"{number} cancelled, asked {task.cancelling()} times")
        except (OSError, RuntimeError) as error:
            seen.append(f"{number} {type(error).__name__}")


def run(points: Points) -> list[str]:
    seen: list[str] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_task_factory(points.factory)

        async def main() -> None:
            await points.begin(waits(seen))

        runner.run(main())
    return seen


def test_awaits_are_counted_by_their_place() -> None:
    points = Points()
    assert run(points) == ["1 slept", "2 slept"]
    (place,) = {point.where for point in points.reached}
    assert place.startswith("controller/base/clock.py:")
    assert place.endswith(" RealClock.sleep")
    assert [point.nth for point in points.reached] == [1, 2]
    assert not points.done


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (Cut.CANCELLED, "2 cancelled, asked 0 times"),
        (Cut.ENDED, "2 cancelled, asked 1 times"),
        (Cut.OS_ERROR, f"2 {InjectedOSError.__name__}"),
        (Cut.BUG, f"2 {InjectedError.__name__}"),
    ],
)
def test_one_await_is_cut(cut: Cut, said: str) -> None:
    first = Points()
    run(first)
    points = Points(Point(first.reached[0].where, 2), cut)
    assert run(points) == ["1 slept", said]
    assert points.done


def test_what_is_not_under_test_is_left_alone() -> None:
    points = Points()
    with asyncio.Runner() as runner:
        runner.get_loop().set_task_factory(points.factory)
        runner.run(waits([]))
    assert points.reached == []
