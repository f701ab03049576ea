"""The parts of the experiment on continued learning that need no cluster: its workload, its history, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.api import LearningStatus
from policies.learned.dl2.learning.replay_trace import FEWEST_JOBS, replay_of, why_too_few
from slurm.experiments.errors import ExperimentError
from slurm.experiments.learning.__main__ import Found
from slurm.experiments.learning.workload import FILE, Workload, arrivals, history, step_s

WORKLOAD = Workload.read(FILE)


def test_arrivals_follow_from_the_seed() -> None:
    jobs = arrivals(40, 1, WORKLOAD)
    assert jobs == arrivals(40, 1, WORKLOAD)
    assert jobs != arrivals(40, 2, WORKLOAD)
    seconds = [job.steps * step_s(job.gpus) for job in jobs]
    assert min(seconds) > 0.9 * WORKLOAD.shortest_s
    assert max(seconds) < 1.1 * WORKLOAD.longest_s
    assert all(job.gpus <= job.most_gpus == 8 for job in jobs)


def test_the_history_and_the_jobs_of_the_cluster_are_enough_for_an_attempt() -> None:
    past = list(history(WORKLOAD, 1e9))
    assert len(past) + WORKLOAD.jobs >= FEWEST_JOBS > len(past)
    assert max(record.finish_time_s for record in past) == pytest.approx(1e9)
    free = WORKLOAD.nodes * WORKLOAD.gpus
    for record in past:
        began_s = record.finish_time_s - record.service_s + 0.01  # those that have just ended are no longer there
        running = [each for each in past if each.finish_time_s - each.service_s <= began_s < each.finish_time_s]
        assert sum(each.num_gpus for each in running) <= free
    more = list(history(WORKLOAD, 1e9 + 1e4))[: FEWEST_JOBS - len(past)]
    assert why_too_few(replay_of([*past, *more]), "") == ""


@pytest.mark.parametrize(("text", "problem"), [("jobs = 3", "give exactly"), ("jobs =", "Invalid value")])
def test_a_file_with_other_entries_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "workload.toml"
    path.write_text(text)
    with pytest.raises(ExperimentError, match=problem):
        Workload.read(path)
    path.write_text(FILE.read_text().replace("jobs = 60", "jobs = 60.5"))
    with pytest.raises(ExperimentError, match="give exactly"):
        Workload.read(path)


def test_the_row_says_whether_other_weights_serve() -> None:
    before = LearningStatus(feedback_samples=80, feedback_updates=30, weights_sha256="aa")
    end = LearningStatus(
        feedback_samples=90, feedback_updates=33, attempts=1, last_result="not better", weights_sha256="aa"
    )
    row = Found(WORKLOAD, "aa", before, end, 50.0, (1.0, 2.0, 3.0), ()).row()
    assert (row["weights changed"], row["updates before the attempt"], row["last result"]) == (False, 30, "not better")
