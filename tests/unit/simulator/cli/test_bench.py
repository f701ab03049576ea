"""`headway-sim bench`. No times are checked, only that the command measures what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.cli import main as cli
from simulator.errors import SettingError
from simulator.runs import bench
from tests.unit.simulator.commands import write

ROWS = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]
CASE = bench.Case("three", 3, "1x4", "fifo", 1e9)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "small.csv", ROWS)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["headway-sim", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_case_runs_in_its_own_process(trace: Path) -> None:
    found = bench.measure(CASE, trace, 2)

    assert (found.jobs, found.runs, found.missed) == (3, 2, False)
    assert found.best_s <= found.median_s
    assert found.cpu_s > 0
    assert 0.01 < found.peak_gb < 1
    assert found.avg_jct_s == pytest.approx((10 + 28 + 11) / 3)


def test_the_peak_is_the_commands_own_not_that_of_the_process_that_starts_it(trace: Path) -> None:
    ours = bytearray(b"x" * 600_000_000)

    assert bench.measure(CASE, trace, 1).peak_gb < 0.4
    assert len(ours) == 600_000_000


def test_a_target_that_is_missed_is_reported(trace: Path) -> None:
    found = bench.measure(replace(CASE, target_s=0.0), trace, 1)

    assert found.missed
    report = bench.Report(speed=[found])
    assert report.missed
    assert f"**{found.best_s:.2f} s**" in "\n".join(bench.lines_of(report))
    assert json.loads(bench.as_json(report))["missed"] is True


def test_a_case_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"failed \(2\): headway-sim run: .*none-such"):
        bench.measure(CASE, tmp_path / "none-such", 1)


def test_the_profile_covers_the_run(trace: Path) -> None:
    phases = bench.profile(CASE, trace)

    assert phases["instants"] == 6
    assert {name for name in phases if name.endswith("_s")} == {
        f"{phase}_s" for phase in ("import", "read", "make", "events", "decide", "settle", "figures")
    }


def test_the_full_benchmark_has_up_to_a_million_jobs_and_quick_up_to_thirty_thousand() -> None:
    assert max(case.jobs for case in bench.curve_cases(quick=False)) == 1_000_000
    assert max(case.jobs for case in bench.curve_cases(quick=True)) == 30_000
    assert {case.cluster for case in bench.curve_cases(quick=False)} == {"2000x8"}


def test_bench_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        bench, "SMALL", (bench.Case("30 jobs", 30, "2x8", "fifo", 0.0), bench.Case("30 jobs", 30, "2x8", "srtf"))
    )
    monkeypatch.setattr(bench, "CURVE", (20,))
    monkeypatch.setattr(bench, "CURVE_CLUSTER", "2x8")

    assert call(monkeypatch, "bench", "--quick", "--repeat", "1", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in found["speed"]] == ["fifo", "srtf"]
    assert [row["jobs"] for row in found["curve"]] == [20, 20]
    assert len(found["profile"]) == 2


def test_a_kernel_that_is_not_compiled_is_reported() -> None:
    assert "The kernel is interpreted" in next(bench.lines_of(bench.Report(kernel="interpreted")))
    assert "kernel" not in "\n".join(bench.lines_of(bench.Report(kernel="compiled")))
    assert json.loads(bench.as_json(bench.Report(kernel="interpreted")))["kernel"] == "interpreted"


def test_a_missing_philly_trace_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "bench", "--philly", "/none-such") == 2
    assert capsys.readouterr().err == (
        "headway-sim bench: --philly /none-such: there is no such file; leave it out to generate a trace instead\n"
    )
