"""Which runs of a job id are of the reported job."""

from __future__ import annotations

import pytest

from controller.admin.report.same_job import own_runs
from controller.slurm.accounting import AccountedRun


def run(submit_s: float, end_s: float | None, state: str, user: str = "ann", name: str = "train") -> AccountedRun:
    return AccountedRun(7, submit_s, submit_s + 10, end_s, 90.0, state, 8, "n1", user, name)


LAST = run(1000.0, None, "RUNNING")


@pytest.mark.parametrize(
    ("earlier", "is_own"),
    [
        (run(100.0, 1000.0, "REQUEUED"), True),
        (run(100.0, 200.0, "NODE_FAIL"), True),
        pytest.param(run(100.0, 990.0, "CANCELLED"), True, id="as some versions of Slurm call a requeued run"),
        pytest.param(run(100.0, 800.0, "COMPLETED"), True, id="requeued by hand after its end"),
        (run(100.0, 200.0, "COMPLETED"), False),
        (run(100.0, 200.0, "TIMEOUT"), False),
        (run(100.0, 1000.0, "REQUEUED", name="other"), False),
        (run(100.0, 1000.0, "REQUEUED", user="bob"), False),
    ],
)
def test_without_a_known_submission_the_last_chain_of_runs_counts(earlier: AccountedRun, is_own: bool) -> None:
    assert own_runs([earlier, LAST], "ann", None) == ([earlier, LAST] if is_own else [LAST])


def test_with_a_known_submission_all_runs_since_then_count() -> None:
    before, first = run(90.0, 95.0, "NODE_FAIL"), run(100.0, 200.0, "FAILED", name="other")
    assert own_runs([before, first, LAST], "ann", 101.0) == [first, LAST]


def test_no_run_of_another_user_is_ever_shown() -> None:
    runs = [run(100.0, 200.0, "REQUEUED"), run(300.0, None, "RUNNING", user="")]
    assert own_runs(runs, "bob", 0.0) == own_runs(runs, "", 0.0) == own_runs([], "ann", None) == []
