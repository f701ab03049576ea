"""A run without compiled loops says so, where it takes long."""

from __future__ import annotations

import pytest

from simulator.runs import progress


@pytest.mark.parametrize(
    ("compiled", "jobs", "reported"),
    [(True, 1_000_000, False), (False, progress.MANY_JOBS - 1, False), (False, progress.MANY_JOBS, True)],
)
def test_loops_that_are_not_compiled_are_reported_for_long_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], compiled: bool, jobs: int, reported: bool
) -> None:
    monkeypatch.setattr(progress, "compiled", lambda: compiled)

    progress.report_interpreted(jobs)

    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("the simulator's loops are not compiled" in printed.err) is reported


@pytest.mark.parametrize(
    ("elapsed_s", "share", "text"),
    [
        (None, 0.0, "-:--:--"),
        (5.0, 0.0, "-:--:--"),
        (60.0, 0.25, "0:03:00"),
        (7200.0, 0.5, "2:00:00"),
        (9.0, 1.0, "0:00:00"),
    ],
)
def test_the_time_left_follows_from_the_share_that_is_done(elapsed_s: float | None, share: float, text: str) -> None:
    assert progress.time_left(elapsed_s, share) == text
