"""The tables of the SCHED2 benchmark, on tiny traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.rule import RuleAgent, Sched2Rule
from policies.learned.sched2.state.first_rule import first_rule
from tests.bench import sched2


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sched2.Workload

    def workload(**options: object) -> sched2.Workload:
        return whole(**{**options, "jobs": 80, "mean_gap_s": 15.0})  # type: ignore[arg-type]

    monkeypatch.setattr(sched2, "Workload", workload)
    monkeypatch.setattr(
        sched2, "Sched2Rule", lambda *_, window: Sched2Rule(RuleAgent(Encoding(window=window), first_rule()))
    )


@pytest.mark.usefixtures("short")
def test_both_readings_have_a_row_for_every_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["sched2", "--seeds", "2", "--json", str(out), "--timeline", "--gap", "60"])
    sched2.main()
    tables = json.loads(out.read_text())["60"]
    assert set(tables) == {"first ten", "whole queue"}
    for rows in tables.values():
        assert {row["policy"] for row in rows} == {
            "sched2-rule",
            "sif",
            "dsif",
            "saf",
            "lrf",
            "spf",
            "fifo",
            "spf-local",
            "delay",
        }
        assert max(row["avg_jct_s_times"] for row in rows if row["policy"] in sched2.BASELINES) == 1
        assert [row["avg_jct_s"] for row in rows] == sorted(row["avg_jct_s"] for row in rows)
        assert all(row["avg_jct_s"] == pytest.approx(row["avg_wait_s"] + row["avg_run_s"]) for row in rows)
        assert all(row[f"{name}_times"] <= row[f"{name}_most_times"] for row in rows for name in sched2.FIGURES)
        control = next(row for row in rows if row["policy"] == row["control"])
        assert control["change"] == 0
        assert len(rows[0]["timeline"]["fragmentation"]) == 60
        fifo = next(row for row in rows if row["policy"] == "fifo")
        assert fifo["relaxed_sensitive"] > control["relaxed_sensitive"]
    assert "gap 60 s, first ten, 2 traces" in capsys.readouterr().out


@pytest.mark.usefixtures("short")
def test_patience_is_looked_for_on_training_traces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    workload = sched2.Workload
    monkeypatch.setattr(sched2, "Workload", lambda **options: seeds.append(options["seed"]) or workload(**options))
    monkeypatch.setattr("sys.argv", ["sched2", "--tune", "--seeds", "2"])
    sched2.main()
    assert seeds == [0, 1]
    assert capsys.readouterr().out.count("patience") == 2 * len(sched2.PATIENCES)
