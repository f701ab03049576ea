"""An unexpected error leaves out one item; it is counted, and logged once for each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from controller.base.apart import LeftOut, apart, culprits, each, each_or, those, together_or_apart
from controller.base.errors import JournalError


def invert(number: int) -> float:
    return 1 / number


def test_the_others_are_handled() -> None:
    assert each("test", [1, 0, 2], invert) == [1.0, 0.5]
    assert each_or("test", [1, 0, 2], invert, -1.0) == [1.0, -1.0, 0.5]
    assert those("test", [1, 0, -2], lambda number: invert(number) > 0) == [1]


def test_errors_that_concern_all_pass() -> None:
    with pytest.raises(JournalError), apart("test"):
        raise JournalError("the disk is full")
    with pytest.raises(asyncio.CancelledError), apart("test"):
        raise asyncio.CancelledError
    with apart("test") as step:
        invert(0)
    assert step.failed


async def test_what_fails_for_all_is_done_for_each() -> None:
    done: list[int] = []

    async def do(numbers: Sequence[int]) -> None:
        done.extend([int(invert(number)) for number in numbers])

    assert await together_or_apart("test", [1, 0, 1], do) == [0]
    assert done == [1, 1]


def test_each_kind_is_logged_once_and_every_error_counts() -> None:
    found = LeftOut()

    def fail(kind: type[KeyError | ValueError]) -> None:
        try:
            raise kind("a text that differs each time")
        except (KeyError, ValueError) as error:
            found.note("test", "7", error)

    with capture_logs() as logs:
        for _ in range(3):
            fail(ValueError)
            fail(KeyError)
    assert [line["item"] for line in logs] == ["7", "7"]
    assert (found.counts(), found.number) == ({"test": 6}, 6)


def test_the_kinds_that_are_remembered_have_a_bound() -> None:
    found = LeftOut()
    with capture_logs():
        for number in range(1000):
            found.note("test", "", type(f"Error{number}", (Exception,), {})())
    assert len(found._logged) <= 200


def test_the_items_that_fail_a_computation_of_all_are_found_by_halves() -> None:
    sizes: list[int] = []

    def add_up(numbers: Sequence[int]) -> float:
        sizes.append(len(numbers))
        return sum(1 / (number - 7) + 1 / (number - 900) for number in numbers)

    assert culprits("sums", range(1000), add_up) == [7, 900]
    assert sum(sizes) < 5 * 1000


@pytest.mark.parametrize("few", [0, 1000])
def test_an_error_that_no_few_items_lead_to_is_raised(few: int) -> None:
    def fails(numbers: Sequence[int]) -> None:
        if len(numbers) >= few or any(number < 500 for number in numbers):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        culprits("sums", range(1000), fails)


def test_an_error_that_only_several_items_together_lead_to_has_no_culprits() -> None:
    def fails(numbers: Sequence[int]) -> None:
        if {3, 700} <= set(numbers):
            raise ZeroDivisionError

    assert culprits("sums", range(1000), fails) == []
