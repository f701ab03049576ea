"""A node opens so many streams, whatever other nodes do."""

from __future__ import annotations

import pytest

from controller.agents.entry import dial_rate
from controller.agents.entry.admission import RefusedError
from controller.agents.entry.dial_rate import DialRate


def test_a_node_has_a_budget_of_its_own_that_grows_again() -> None:
    now_s = [0.0]
    rate = DialRate(lambda: now_s[0])
    for _ in range(dial_rate._BURST):
        rate.take("n1")
    with pytest.raises(RefusedError, match="n1 has opened too many streams"):
        rate.take("n1")
    rate.take("n2")
    now_s[0] += 1.0 / dial_rate._PER_S
    rate.take("n1")
    with pytest.raises(RefusedError):
        rate.take("n1")


def test_nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_rate, "_MOST_NODES", 10)
    now_s = [0.0]
    rate = DialRate(lambda: now_s[0])
    for number in range(100):
        now_s[0] += 10.0 / dial_rate._PER_S
        rate.take(f"n{number}")
    assert len(rate._buckets) <= 10
