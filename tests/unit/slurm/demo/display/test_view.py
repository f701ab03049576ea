"""Short forms of placements."""

from __future__ import annotations

import pytest

from slurm.demo.display.view import where


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ((), ""),
        ((("n1", 8),), "n1:8"),
        ((("n1", 8), ("n2", 8)), "n[1-2]:8"),
        ((("n1", 6), ("n2", 6), ("n4", 6)), "n[1-2,4]:6"),
        ((("n1", 8), ("n2", 4)), "n1:8 n2:4"),
        ((("n2", 4), ("n1", 4), ("n3", 2)), "n[1-2]:4 n3:2"),
        ((("n9", 1), ("n10", 1), ("n11", 1)), "n[9-11]:1"),
        ((("alpha", 2), ("beta", 2)), "alpha,beta:2"),
        ((("n01", 2), ("n02", 2)), "n[01-02]:2"),
        ((("a1", 2), ("b2", 2)), "a1,b2:2"),
    ],
)
def test_nodes_with_the_same_number_of_gpus_stand_together(gpus: tuple[tuple[str, int], ...], text: str) -> None:
    assert where(gpus) == text
