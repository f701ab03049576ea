"""Notes on running jobs, and the records of those that have ended."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.api import Outcome
from policies.errors import TrainingError
from policies.learned.dl2.learning import job_notes
from policies.learned.dl2.learning.job_notes import JobNotes
from policies.learned.dl2.learning.record import JobRecord
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster

NOW_S = 1e6


def running(size: int, service_s: float, gpu_s: float = 0.0, progress: float = 0.5) -> ClusterState:
    """A state with one job, which asks for 2 GPUs and has so many."""
    placed = Job(
        gpus=2, sizes=(1, 8), occupied={0: size}, service_s=service_s, attained_gpu_s=gpu_s, training=(20.0, progress)
    )
    return cluster([Node(8)], [placed])


def ended(notes: JobNotes, service_s: float, **values: object) -> JobRecord | None:
    outcome = Outcome("100", "ada", "train", 5000.0, 5001.0, 9000.0, 4, 1, service_s, "COMPLETED")
    return notes.ended(replace(outcome, **values), NOW_S)  # type: ignore[arg-type] # fields of Outcome


def test_service_counts_for_the_size_of_its_time() -> None:
    notes = JobNotes()
    # given a job that begins with 4 GPUs, and is seen with 2 from 600 s on
    notes.see(running(4, 0.0))
    notes.see(running(4, 300.0))
    notes.see(running(2, 600.0))
    # when it ends after 1000 s
    record = ended(notes, 1000.0)
    # then it had 4 GPUs until 600 s, and what its user asked for is recorded too
    assert record is not None
    assert record.sizes == ((2, 400.0), (4, 600.0))
    assert (record.num_gpus, record.min_gpus, record.max_gpus, record.epochs) == (2, 1, 8, 20.0)
    assert (record.submit_time_s, record.finish_time_s, record.service_s) == (
        float(running(2, 0).jobs.submit_time_s[0]),
        9000.0,
        1000.0,
    )
    assert not len(notes)


def test_what_it_trained_counts_for_the_size_of_its_time_and_gives_its_run_time_at_the_requested_size() -> None:
    notes = JobNotes()
    # given a job that trains 30 % with 4 GPUs in 200 s, goes on with 2, and makes some steps again
    for size, service_s, progress in ((4, 0.0, math.nan), (4, 100.0, 0.2), (2, 200.0, 0.3), (2, 300.0, 0.25)):
        notes.see(running(size, service_s, progress=progress))
    record = ended(notes, 900.0)
    assert record is not None
    assert record.shares == ((2, pytest.approx(0.7)), (4, pytest.approx(0.3)))
    # then the whole of it would take 1000 s with the 2 GPUs that it asked for; by its GPU seconds it would be 1100 s
    assert record.sizes == ((2, 700.0), (4, 200.0))
    assert record.requested_s == pytest.approx(1000.0)
    assert replace(record, shares=()).requested_s == pytest.approx(1100.0)
    # of a job that failed, what it trained is replayed
    for size, service_s, progress in ((2, 0.0, 0.0), (2, 500.0, 0.5)):
        notes.see(running(size, service_s, progress=progress))
    failed = ended(notes, 500.0, final_state="FAILED")
    assert failed is not None
    assert failed.requested_s == pytest.approx(500.0)


def test_the_first_report_of_a_job_that_had_several_sizes_counts_for_none() -> None:
    notes = JobNotes()
    for size, service_s, progress in ((4, 0.0, math.nan), (2, 100.0, math.nan), (2, 200.0, 0.6), (2, 300.0, 0.8)):
        notes.see(running(size, service_s, progress=progress))
    record = ended(notes, 400.0, final_state="CANCELLED")
    assert record is not None
    assert record.shares == ((2, pytest.approx(0.2)),)


def test_after_a_restart_the_time_before_counts_for_the_mean_size() -> None:
    notes = JobNotes()
    notes.see(running(2, 600.0, gpu_s=2400.0))
    record = ended(notes, 1000.0)
    assert record is not None
    assert record.sizes == ((2, 400.0), (4, 600.0))


def test_a_job_that_was_never_seen_has_the_size_of_its_end() -> None:
    record = ended(JobNotes(), 1000.0)
    assert record is not None
    assert (record.num_gpus, record.min_gpus, record.max_gpus, record.sizes) == (4, 4, 4, ((4, 1000.0),))


def test_states_that_leave_a_running_job_out_change_nothing() -> None:
    notes = JobNotes()
    state = running(4, 300.0, gpu_s=1200.0)
    notes.see(state)
    notes.see(replace(state, jobs=state.jobs.stopped(0)))
    notes.see(cluster([], []))
    record = ended(notes, 500.0)
    assert record is not None
    assert record.sizes == ((4, 500.0),)


def test_a_job_that_never_ran_has_no_record() -> None:
    assert ended(JobNotes(), 0.0) is None


@pytest.mark.parametrize(
    "values",
    [
        {"finish_time_s": NOW_S + 4000.0},
        {"finish_time_s": -1.0},
        {"num_gpus": 0},
        {"num_gpus": 1 << 31},
        {"service_s": 1e15},
        {"service_s": -5.0},
        {"job_id": "x" * 10_000},
        {"final_state": "\0"},
        {"submit_time_s": -1e300},
    ],
)
def test_absurd_outcomes_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(TrainingError):
        ended(JobNotes(), **{"service_s": 1000.0, **values})  # type: ignore[arg-type] # fields of Outcome


def test_the_number_of_notes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_notes, "_MOST", 3)
    notes = JobNotes()
    notes.see(cluster([Node(8)], [Job(gpus=1, occupied={0: 1}) for _ in range(8)]))
    assert len(notes) == 3
