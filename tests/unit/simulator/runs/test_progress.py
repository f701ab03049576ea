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
