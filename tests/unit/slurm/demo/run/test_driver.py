"""A run from its first submission to its last end."""

from __future__ import annotations

import pytest

from slurm.demo.display.view import Stage
from slurm.demo.errors import DemoError
from slurm.demo.run.driver import Run, drive
from tests.unit.slurm.demo_world import FakeScreen, FakeTimer, FakeWorld, training


def test_every_script_is_submitted_at_its_time() -> None:
    timer = FakeTimer()
    world = FakeWorld(timer)
    mix = (training("late", submit_at_s=3.5), training("early"), training("array", submit_at_s=1.0, array=2))

    drive(Run("1 of 1", world, mix, limit_s=60), FakeScreen(), timer)

    assert world.submitted == pytest.approx({"early": 0.0, "array_0": 1.0, "array_1": 1.0, "late": 3.5}, abs=0.1)


def test_the_result_has_wait_and_completion_time_of_every_job() -> None:
    timer = FakeTimer()
    world = FakeWorld(timer, wait_s=2.0, run_s=5.0)

    result = drive(Run("1 of 1", world, (training("a"), training("b", submit_at_s=4.0)), 60), FakeScreen(), timer)

    assert [(job.label, job.wait_s, job.jct_s) for job in result.jobs] == [("a", 2.0, 7.0), ("b", 2.0, 7.0)]
    assert (result.mean_wait_s, result.mean_jct_s, result.makespan_s) == (2.0, 7.0, pytest.approx(11.0, abs=0.1))
    assert result.completed


def test_where_a_job_ran_and_why_outlives_the_job() -> None:
    timer = FakeTimer()

    result = drive(Run("1 of 1", FakeWorld(timer), (training("a"),), 60), FakeScreen(), timer)

    (job,) = result.jobs
    assert job.gpus == (("n1", 4), ("n2", 4))
    assert job.why == "best fit for a"
    assert job.step_ms == 100.0


def test_the_screen_sees_the_job_wait_run_and_end_and_is_closed() -> None:
    timer, screen = FakeTimer(), FakeScreen()

    drive(Run("1 of 1", FakeWorld(timer), (training("a"),), 60), screen, timer)

    stages = list(dict.fromkeys(frame.jobs["a"].stage for frame in screen.frames))
    assert stages[0] is Stage.WAITING
    assert stages[-1] is Stage.DONE
    assert screen.closed


def test_slurms_reason_for_waiting_is_not_kept_once_the_job_runs() -> None:
    timer, screen = FakeTimer(), FakeScreen()

    drive(Run("1 of 1", FakeWorld(timer), (training("a"),), 60), screen, timer)

    assert {frame.jobs["a"].why for frame in screen.frames} == {"Resources", "best fit for a"}


def test_a_run_that_never_ends_is_given_up_and_names_the_late_jobs() -> None:
    timer, screen = FakeTimer(), FakeScreen()

    with pytest.raises(DemoError, match=r"jobs have not ended after 30 s: a \(running\)"):
        drive(Run("1 of 1", FakeWorld(timer, run_s=1e6), (training("a"),), limit_s=30), screen, timer)
    assert screen.closed


def test_a_job_that_fails_ends_the_run_and_spoils_the_result() -> None:
    timer = FakeTimer()

    result = drive(Run("1 of 1", FakeWorld(timer, verdict="FAILED"), (training("a"),), 60), FakeScreen(), timer)

    assert not result.completed
    assert result.jobs[0].state == "FAILED"
