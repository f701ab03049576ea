"""Online learning in the testbed of figure 11."""

from __future__ import annotations

import json
import math

import pytest

from simulator.papers.marl.reproduction import online, settings
from simulator.papers.marl.reproduction.contenders import KUBERNETES, OURS
from simulator.papers.marl.reproduction.settings import JCT
from simulator.traces.generators.marl import Marl

pytest.importorskip("torch")
DAY = Marl(jobs=8, mean_gap_s=900.0, schedulers=2, least_workers=2, most_workers=4, most_servers=2)


@pytest.fixture(autouse=True)
def short_days(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**settings.TESTBED.options, "traces": DAY}
    monkeypatch.setattr(online, "TESTBED", settings.setting("testbed", "short days", **options))


def test_every_day_is_met_by_the_weights_of_the_days_before() -> None:
    found = online.program(["--days", "2", "--learning-rate", "0.01"])
    assert json.dumps(found)
    assert set(found[JCT]) == {online.ONLINE, OURS, "tetris", "lb", "lif", KUBERNETES}
    assert all(mean["mean"] > 0 for mean in found[JCT].values())
    first, second = found["loss_of_each_scheduler"]
    assert len(first) == len(second) == 2 and all(math.isfinite(loss) for loss in (*first, *second))
    # The first day does not depend on the learning rate, and the second does.
    slow = online.program(["--days", "2", "--learning-rate", "0.00001"])["loss_of_each_scheduler"]
    assert slow[0] == first and slow[1] != second


def test_a_day_gives_the_same_result_again() -> None:
    once, again = (online.program(["--days", "2"]) for _ in range(2))
    assert once["loss_of_each_scheduler"] == again["loss_of_each_scheduler"] and once[JCT] == again[JCT]
