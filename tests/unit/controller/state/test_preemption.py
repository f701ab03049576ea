"""Stages of a preemption by snapshots that lie far apart: the job may have been stopped, have run again, and have ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.slurm.model.job import NodeShare, Phase, SlurmJob
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage, after_snapshot
from tests.unit.controller.examples.build import NOW_S, job

SAVED = Preemption(
    number=1, job_id="7", raw_id=7, submit_time_s=999_000, restarts=0, cause=Cause.OPERATOR, why="by hand",
    way=PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",), constraint=RelocationConstraint(), within_s=60.0,
    stage=Stage.SAVED, asked_s=NOW_S - 50, saved_s=NOW_S - 40, step=41,
)  # fmt: skip
STOPPED = replace(SAVED, stage=Stage.STOPPED, stopped_s=NOW_S - 30)
ON_N2 = (NodeShare("n2", 1, 1, 1, 1000),)


def ended(state: str, **more: Any) -> SlurmJob:
    facts = {"restarts": 1, "start_time_s": NOW_S - 20, "end_time_s": NOW_S - 5, **more}
    return job("7", submit=int(NOW_S) - 30, phase=Phase.ENDED, state=state, **facts)


@pytest.mark.parametrize("before", [SAVED, STOPPED])
@pytest.mark.parametrize(
    "left", [{}, {"start_time_s": NOW_S - 5, "allocated": ON_N2}], ids=["for some seconds", "for less than a second"]
)
def test_a_job_that_ran_again_and_failed_between_two_snapshots_had_been_started(
    before: Preemption, left: dict[str, Any]
) -> None:
    row = after_snapshot(before, ended("FAILED", **left), NOW_S)
    assert (row.stage, row.started_s, row.open) == (Stage.OVER, NOW_S, False)
    assert row.problem == "the job was started again and ended (FAILED) before its first step"


def test_a_job_that_ran_again_and_completed_between_two_snapshots_has_continued() -> None:
    row = after_snapshot(STOPPED, ended("COMPLETED"), NOW_S)
    assert (row.stage, row.started_s, row.open) == (Stage.STARTED, NOW_S, False)


def test_a_job_that_is_cancelled_in_the_queue_after_its_stop_did_not_run_again() -> None:
    row = after_snapshot(STOPPED, ended("CANCELLED", start_time_s=NOW_S - 5), NOW_S)
    assert (row.stage, row.started_s) == (Stage.OVER, None)
    assert row.problem == "the job ended (CANCELLED) before it ran again"
