"""Order in which the files of tests are given to parallel processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

import pytest

T = TypeVar("T")

BEFORE_THE_END = 0.6
"""Share of the computing files among which the waiting ones are spread, so that no process waits at the end of the run."""


def spread_files(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the files on a real Slurm spread evenly among the others; the order within a file is kept.

    Tests on a real Slurm mostly wait. If their files came one after another, all processes would wait at first, and later
    compete for the cores.
    """
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    waiting = [file for file in files if _waits(file)]
    computing = [file for file in files if not _waits(file)]
    return [item for file in spread(waiting, computing) for item in file]


def _waits(file: list[pytest.Item]) -> bool:
    return any(item.get_closest_marker("cluster") for item in file)


def spread(some: Sequence[T], others: Sequence[T]) -> list[T]:
    """Return `others` with `some` at equal distances among the first of them."""
    distance = BEFORE_THE_END * len(others) / max(1, len(some))
    places = [(at * distance, each) for at, each in enumerate(some)] + list(enumerate(others))
    return [each for _, each in sorted(places, key=lambda place: place[0])]
