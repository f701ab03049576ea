"""Delay scheduling by its patience, on tiny traces."""

from __future__ import annotations

import json

import pytest

from simulator.papers.programs import answer
from simulator.papers.sched2.reproduction import patience


def test_patience_is_looked_for_on_training_traces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    whole = patience.generate
    monkeypatch.setattr(patience, "generate", lambda workload: seeds.append(workload.seed) or whole(workload))

    assert answer(patience.program, ["--seeds", "2", "--jobs", "60"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert seeds == [0, 1]
    assert (found["seeds"], found["jobs"]) == (2, 60)
    assert [(row["reading"], row["patience"]) for row in found["rows"]] == [
        (reading, value) for reading in ("first ten", "whole queue") for value in patience.PATIENCES
    ]
    assert all(row["avg_jct_s"] > 0 and row["ci95"] >= 0 for row in found["rows"])
