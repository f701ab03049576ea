"""From snapshots to views."""

from __future__ import annotations

import pytest

from controller.slurm.model.job import Phase
from slurm.demo.display.reading import LinkMeter, view_of
from slurm.demo.display.view import LinkView, Stage
from slurm.minicluster.host.network import LinkBytes
from tests.unit.slurm.demo_world import EPOCH_S, share, slurm_job, snapshot


def test_jobs_of_others_are_not_shown() -> None:
    view = view_of(snapshot(slurm_job("1"), slurm_job("2", "stranger")), {"1": "bert"}, {})

    assert set(view.jobs) == {"bert"}


def test_tasks_of_an_array_are_distinct() -> None:
    jobs = (slurm_job("7_0", "sweep"), slurm_job("7_2", "sweep"))

    view = view_of(snapshot(*jobs), {"7": "sweep"}, {})

    assert {label: job.job_id for label, job in view.jobs.items()} == {"sweep_0": "7_0", "sweep_2": "7_2"}


@pytest.mark.parametrize(
    ("phase", "state", "stage"),
    [
        (Phase.PENDING, "PENDING", Stage.WAITING),
        (Phase.CONFIGURING, "CONFIGURING", Stage.RUNNING),
        (Phase.COMPLETING, "COMPLETING", Stage.RUNNING),
        (Phase.ENDED, "COMPLETED", Stage.DONE),
        (Phase.ENDED, "TIMEOUT", Stage.FAILED),
    ],
)
def test_stages_follow_slurms_phases(phase: Phase, state: str, stage: Stage) -> None:
    view = view_of(snapshot(slurm_job("1", phase=phase, state=state)), {"1": "bert"}, {})

    assert view.jobs["bert"].stage is stage


def test_a_waiting_job_has_slurms_reason_and_no_start() -> None:
    job = slurm_job("1", phase=Phase.PENDING, reason="Resources", start_s=EPOCH_S + 500)

    seen = view_of(snapshot(job), {"1": "bert"}, {}).jobs["bert"]

    assert (seen.why, seen.start_s) == ("Resources", None)


def test_every_gpu_shows_which_job_holds_it() -> None:
    exact = slurm_job("1", shares=(share("n1", 2, gpu_mask=0b1010),))
    anywhere = slurm_job("2", shares=(share("n1", 3),))

    view = view_of(snapshot(exact, anywhere), {"1": "a", "2": "b"}, {})

    assert view.nodes[0].owners == ("b", "a", "b", "a", "b", "", "", "")
    assert view.nodes[1].owners == ("",) * 8


def test_an_ended_job_holds_nothing() -> None:
    job = slurm_job("1", phase=Phase.ENDED, state="COMPLETED", shares=(share("n1", 8),), end_s=EPOCH_S + 9)

    view = view_of(snapshot(job), {"1": "bert"}, {})

    assert view.nodes[0].owners == ("",) * 8
    assert view.jobs["bert"].end_s == EPOCH_S + 9


def test_link_rates_come_from_two_readings() -> None:
    meter = LinkMeter()

    first = meter.rates({"n1": LinkBytes(sent=0, received=0)}, 100.0)
    second = meter.rates({"n1": LinkBytes(sent=25_000_000, received=12_500_000)}, 101.0)

    assert first == {}
    assert second == {"n1": LinkView(sent=200.0, received=100.0)}


def test_counters_that_begin_again_are_no_negative_traffic() -> None:
    meter = LinkMeter()
    meter.rates({"n1": LinkBytes(sent=1000, received=1000)}, 100.0)

    assert meter.rates({"n1": LinkBytes(sent=0, received=0)}, 101.0) == {"n1": LinkView(0.0, 0.0)}
