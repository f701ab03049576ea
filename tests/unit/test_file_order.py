"""Files on a real Slurm are spread among the others, and none is near the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.file_order import spread, spread_files


def test_waiting_files_are_at_equal_distances_and_none_is_at_the_end() -> None:
    found = spread(["a", "b", "c"], list(range(20)))
    assert found == ["a", 0, 1, 2, 3, "b", 4, 5, 6, 7, "c", *range(8, 20)]


@pytest.mark.parametrize(("some", "others"), [([], [1, 2]), (["a", "b"], []), ([], [])])
def test_without_files_of_one_kind_the_order_stays(some: list[Any], others: list[Any]) -> None:
    assert spread(some, others) == [*some, *others]


class Item:
    """A test as pytest collects it."""

    def __init__(self, path: str, marker: str = "") -> None:
        self.path = Path(path)
        self._marker = marker

    def get_closest_marker(self, name: str) -> bool:
        return name == self._marker


def test_the_tests_of_a_file_stay_together() -> None:
    items = [Item("slurm_a", "cluster"), Item("slurm_a"), Item("slurm_b", "cluster")]
    items += [Item(name) for name in "pqrst" for _ in range(2)]
    found = spread_files(cast("list[pytest.Item]", items))
    order = ["slurm_a", *"pq", "slurm_b", *"rst"]
    assert list(dict.fromkeys(item.path.name for item in found)) == order
    assert sorted(map(id, found)) == sorted(map(id, items))
