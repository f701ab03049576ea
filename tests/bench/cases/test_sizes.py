"""The largest sizes that are promised, on a real slurmctld: all jobs start or stay in the queue, and no cycle fails.

The tests run the benchmarks in full size and judge everything except times, which depend on the machine.
"""

from __future__ import annotations

import pytest

from tests.bench.cases import backlog, size
from tests.bench.measuring.figures import Findings
from tests.cluster.conftest import skip_unless_possible

_STALE_S = 30.0
"""Age from which the watchdog treats a lease as stale, seconds."""
_LEASE = "longest time between two leases"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.usefixtures("possible")]


@pytest.fixture
def possible() -> None:
    skip_unless_possible()


def judge(findings: Findings, *names: str) -> None:
    """Check these figures against their targets, and that the lease was never stale."""
    figures = {figure.name: figure for figure in findings.figures}
    assert figures[_LEASE].value < _STALE_S
    assert {name: figures[name].value for name in names if not figures[name].met} == {}


def test_20_000_jobs_that_can_start_at_once_all_start_once() -> None:
    findings = backlog.run(quick=False)  # it raises an error unless every job runs
    judge(findings, "steps that failed", "jobs released twice", "cycles that failed", "controller's memory, peak")


def test_with_100_000_held_jobs_and_10_000_nodes_no_cycle_fails_and_no_job_is_lost() -> None:
    findings = size.run(quick=False)
    judge(findings, "jobs that the controller lacks", "cycles that failed", "controller's memory, peak")
