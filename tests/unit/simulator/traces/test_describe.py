"""Statistics of a trace, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import TraceError
from simulator.traces.describe import Load, SizeShare, describe
from simulator.traces.plot import plot
from simulator.traces.trace import NS_PER_S, Trace

HOUR = 3600 * NS_PER_S


def small() -> Trace:
    return Trace.of(
        "small",
        ["a", "b", "c", "d"],
        [0, HOUR, 25 * HOUR, 25 * HOUR],
        [1, 1, 4, 16],
        [HOUR, 3 * HOUR, HOUR, 2 * HOUR],
        limit_ns=[-1, 4 * HOUR, -1, -1],
        preemptible=[True, True, True, False],
        max_gpus=[1, 2, 4, 16],
        user=["ann", "bob", "ann", ""],
        model=["bert", "", "bert", "gpt2"],
    )


def test_statistics() -> None:
    reported = describe(small(), cluster_gpus=8)
    assert (reported.jobs, reported.span_s, reported.gpu_hours, reported.mean_gpus) == (4, 90_000, 40, 5.5)
    assert reported.sizes == (
        SizeShare(1, 2, 0.5, 0.1),
        SizeShare(4, 1, 0.25, 0.1),
        SizeShare(16, 1, 0.25, 0.8),
    )
    assert reported.duration_s["p50"] == 5400
    assert (reported.duration_s["min"], reported.duration_s["mean"], reported.duration_s["max"]) == (3600, 6300, 10_800)
    assert reported.duration_p50_by_size_s == {"1": 7200, "2-4": 3600, "more than 8": 7200}
    assert reported.submits_by_hour == (1, 3, *[0] * 22)
    assert reported.gpu_hours_by_hour == pytest.approx((1, 39, *[0] * 22))
    assert (reported.mean_gap_s, reported.users, reported.most_active) == (30_000, 2, {"ann": 2, "bob": 1})
    assert reported.models == {"bert": 2, "gpt2": 1}
    assert (reported.with_limit, reported.not_preemptible, reported.elastic) == (1, 1, 1)
    assert reported.load == Load(8, 8 / 25 / 8, 1)


def test_a_single_job_and_jobs_at_once_have_no_gap_and_no_load() -> None:
    reported = describe(small().head(1), cluster_gpus=8)
    assert (reported.mean_gap_s, reported.gap_cv, reported.load) == (None, None, Load(8, None, 0))
    assert describe(small()).load is None


@pytest.mark.parametrize("name", ["t.png", "t.svg"])
def test_a_picture(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    plot(small(), tmp_path / name, cluster_gpus=8)
    head = (tmp_path / name).read_bytes()[:5]
    assert head in {b"\x89PNG\r", b"<?xml"}


def test_a_picture_of_a_single_job(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(small().head(1), tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000


def test_a_picture_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(TraceError, match="the plot cannot be written"):
        plot(small(), tmp_path / "t.nope")
