"""The table of waits by load: its figures by hand, and a small one whole."""

from __future__ import annotations

import json

import pytest

from simulator.cluster.cluster import Cluster
from simulator.papers.programs import answer
from simulator.papers.sched2.baselines import BASELINES
from simulator.papers.sched2.reproduction.waits_by_load import Row, gap_of, load_of, program
from tests.unit.simulator.envs.worlds import trace_of


def row(gap_s: float, window: int, baseline: str, wait_s: float) -> Row:
    return Row(gap_s, window, baseline, 1.0, wait_s, None, 1.0, 1.0, 1.0, 1.0)


def test_load_is_work_over_what_the_cluster_could_do() -> None:
    # 2 x 60 + 6 x 100 GPU-seconds over 90 s on 16 GPUs.
    assert load_of(trace_of((10, 2, 60), (100, 6, 100)), Cluster.uniform(2, 8)) == pytest.approx(720 / 90 / 16)


def test_the_gap_is_found_between_two() -> None:
    waits = {"sif": (3000, 1000), "dsif": (1500, 1000), "saf": (5000, 4000)}
    found = [
        row(gap, window, name, waits.get(name, (2000, 0))[place] + (window == 10) * 10_000)
        for window in (0, 10)
        for place, gap in enumerate((100.0, 200.0))
        for name in BASELINES
    ]
    gaps = gap_of(2000.0, found)["0"]
    assert gaps["sif"] == 150
    assert gaps["dsif"] is None
    assert gaps["saf"] is None
    assert gaps["lrf"] == 100
    # The mean of the six falls from 15,500 / 6 to 1,000.
    assert gaps["mean of all"] == pytest.approx(100 + 100 * (15_500 / 6 - 2000) / (15_500 / 6 - 1000))
    assert gaps["best"] is None
    assert set(gap_of(2000.0, found)["10"].values()) == {None}


def test_a_small_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        answer(
            program,
            [
                "--gaps",
                "300",
                "600",
                "--seeds",
                "2",
                "--jobs",
                "60",
                "--cluster",
                "4x8",
                "--wait",
                "4000",
                "--stretch",
                "1.5",
            ],
        )
        == 0
    )
    table = json.loads(capsys.readouterr().out)
    assert (table["seeds"], table["jobs"], table["stretch"], table["cluster"]) == (2, 60, 1.5, "4x8")
    assert [(each["gap_s"], each["window"], each["baseline"]) for each in table["rows"]] == [
        (gap, window, name) for gap in (300, 600) for window in (0, 10) for name in BASELINES
    ]
    for each in table["rows"]:
        assert each["jct_s"] == pytest.approx(each["wait_s"] + each["run_s"])
    waits = {(each["gap_s"], each["window"], each["baseline"]): each["wait_s"] for each in table["rows"]}
    assert waits[300, 0, "fifo"] == waits[300, 10, "fifo"] > waits[600, 0, "fifo"]
    assert waits[300, 10, "sif"] >= waits[300, 0, "sif"]
