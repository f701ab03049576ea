"""Throughputs of whole jobs from what single nodes saw."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.profiles.sightings import Arrival, sighting_of
from controller.profiles.windows import RunKey, RunShape, Sample, SlurmRun, Throughput, Trained, window_throughputs
from tests.unit.controller.examples.reports import SIGNATURE, Agents, Training

WINDOW_S = 30.0
TRAINED = Trained(1000, "train.py", SIGNATURE)


def samples(*jobs: Training, start_s: float = 300.0, every_s: float = 5.0) -> list[Sample]:
    found = [sighting_of(arrival) for arrival in Agents().watch(jobs, start_s, start_s + WINDOW_S, every_s)]
    return [item.sample for item in found if item is not None and item.sample is not None]


def observed(
    *jobs: Training,
    present: dict[str, Collection[int]] | None = None,
    runs: Sequence[SlurmRun] = (),
) -> dict[int, Throughput]:
    runs_by_job = {run.run.job_id: [each for each in runs if each.run.job_id == run.run.job_id] for run in runs}
    found = window_throughputs(samples(*jobs), 300.0, WINDOW_S, present or {}, runs=runs_by_job)
    return {item.run.job_id: item for item in found}


def run(job_id: int, restart: int, start_s: float) -> SlurmRun:
    return SlurmRun(RunKey(job_id, restart), start_s)


def test_the_rate_is_exact_for_any_times_of_the_reports() -> None:
    found = observed(Training(1, ("n1", "n2"), 0.7, gpus=4, ranks=4))[1]
    assert found.steps_per_s == pytest.approx(0.7, rel=1e-6)
    assert (found.trained, found.shape, found.nodes) == (TRAINED, RunShape(8, 2), ("n1", "n2"))
    assert found.alone


def test_the_slowest_node_is_the_job_s_pace() -> None:
    mixed = [
        *samples(Training(1, ("n1", "n2"), 4.0)),
        *samples(Training(1, ("n1", "n2"), 2.0)),
    ]
    pace = [sample for sample in mixed[:12] if sample.node == "n1"] + [
        sample for sample in mixed[12:] if sample.node == "n2"
    ]
    (found,) = window_throughputs(pace, 300.0, WINDOW_S, {})
    assert found.steps_per_s == pytest.approx(2.0, rel=1e-6)


def test_jobs_with_a_node_in_common_are_neighbours() -> None:
    found = observed(Training(1, ("n1", "n2"), 4.0), Training(2, ("n2", "n3"), 3.0), Training(3, ("n4",), 1.0))
    assert [other.run for other in found[1].neighbours] == [RunKey(2, 0)]
    assert found[1].neighbours[0].steps_per_s == pytest.approx(3.0, rel=1e-6)
    assert found[1].neighbours[0].shape == RunShape(2, 2)
    assert [other.run for other in found[2].neighbours] == [RunKey(1, 0)]
    assert found[3].alone


def test_links_of_the_caller_s_cluster_make_neighbours_too() -> None:
    def links(nodes: Collection[str]) -> set[str]:
        racks = {node[0] for node in nodes}
        return set(nodes) | ({f"uplink {rack}" for rack in racks} if len(racks) > 1 else set())

    jobs = (Training(1, ("a1", "b1"), 4.0), Training(2, ("a2", "c1"), 4.0), Training(3, ("a3", "a4"), 4.0))
    found = {item.run.job_id: item for item in window_throughputs(samples(*jobs), 300.0, WINDOW_S, {}, links)}
    assert [other.run.job_id for other in found[1].neighbours] == [2]
    assert found[3].alone


def test_a_job_that_reports_nothing_is_a_neighbour_where_it_is_known_to_be() -> None:
    found = observed(Training(1, ("n1", "n2"), 4.0), present={"n2": [1, 77], "n9": [78]})[1]
    assert [(other.run.job_id, other.trained, other.steps_per_s) for other in found.neighbours] == [(77, None, None)]
    assert not found.alone


@pytest.mark.parametrize("edge", [{"start_s": 312.0}, {"end_s": 318.0}])
def test_windows_in_which_a_neighbour_came_or_went_are_not_used(edge: dict[str, float]) -> None:
    # given a job that is there throughout, and one that is not
    found = observed(Training(1, ("n1",), 4.0), Training(2, ("n1",), 4.0, **edge), Training(3, ("n5",), 4.0))
    # then neither of the two is measured; a third, elsewhere, is
    assert set(found) == {3}


def test_a_job_of_which_a_node_is_missing_is_not_measured() -> None:
    one = [sample for sample in samples(Training(1, ("n1", "n2"), 4.0)) if sample.node == "n1"]
    assert window_throughputs(one, 300.0, WINDOW_S, {}) == []


def test_a_neighbour_of_which_a_node_is_missing_is_still_a_neighbour() -> None:
    seen = [
        sample for sample in samples(Training(1, ("n1",), 4.0), Training(2, ("n1", "n2"), 4.0)) if sample.node == "n1"
    ]
    (found,) = window_throughputs(seen, 300.0, WINDOW_S, {})
    assert (found.run.job_id, [other.run.job_id for other in found.neighbours]) == (1, [2])


def test_a_job_that_does_not_step_is_not_measured_but_is_there() -> None:
    found = observed(Training(1, ("n1",), 4.0), Training(2, ("n1",), 1e-6, ranks=1))
    assert set(found) == {1}
    assert [(other.run.job_id, other.steps_per_s) for other in found[1].neighbours] == [(2, None)]


def test_a_lost_report_changes_nothing() -> None:
    whole = samples(Training(1, ("n1",), 3.3))
    for lost in range(1, len(whole) - 1):
        (found,) = window_throughputs(whole[:lost] + whole[lost + 1 :], 300.0, WINDOW_S, {})
        assert found.steps_per_s == pytest.approx(3.3, rel=1e-6)


def test_the_stall_before_the_window_is_not_in_it() -> None:
    # given a job whose last step before the window was long ago
    seen = samples(Training(1, ("n1",), 4.0))
    stalled = [replace(seen[0], steps=1, last_step_ns=200 * 10**9), *seen[1:]]
    (found,) = window_throughputs(stalled, 300.0, WINDOW_S, {})
    assert found.steps_per_s == pytest.approx(4.0, rel=1e-6)


def test_without_gpus_the_ranks_are_counted() -> None:
    assert observed(Training(1, ("n1", "n2"), 4.0, gpus=None, ranks=3))[1].shape == RunShape(6, 2)


def test_the_order_of_samples_does_not_matter() -> None:
    seen = samples(Training(1, ("n1", "n2"), 4.0), Training(2, ("n2",), 3.0))
    assert window_throughputs(seen[::-1], 300.0, WINDOW_S, {}) == window_throughputs(seen, 300.0, WINDOW_S, {})


# --- runs


def test_slurm_and_not_the_job_decides_which_run_a_report_belongs_to() -> None:
    # Given a job that inherited the count of the requeued one that submitted it, and one of which each process says another
    inherits, liar = Training(1, ("n1",), 4.0, restart=3), Training(2, ("n2", "n3"), 4.0)
    lies = [replace(sample, claimed_restart=at % 7) for at, sample in enumerate(samples(liar))]
    runs_by_job = {1: [run(1, 0, 100.0)], 2: [run(2, 1, 200.0)]}

    found = window_throughputs([*samples(inherits), *lies], 300.0, WINDOW_S, {}, runs=runs_by_job)

    # Then both are filed by Slurm's word; and who changes what it says has lost its own windows
    assert [item.run for item in found] == [RunKey(1, 0)]


def test_a_job_that_reports_ever_new_runs_hides_no_other_windows() -> None:
    neighbour = samples(Training(1, ("n1",), 4.0))
    lies = [replace(sample, claimed_restart=at) for at, sample in enumerate(samples(Training(2, ("n1",), 4.0)))]
    (found,) = window_throughputs([*neighbour, *lies], 300.0, WINDOW_S, {"n1": [1, 2]}, runs={2: [run(2, 0, 100.0)]})
    assert (found.run, [other.run for other in found.neighbours]) == (RunKey(1, 0), [RunKey(2, 0)])
    # also before Slurm has said anything
    (found,) = window_throughputs([*neighbour, *lies], 300.0, WINDOW_S, {"n1": [1, 2]})
    assert (found.run.job_id, [other.run.job_id for other in found.neighbours]) == (1, [2])


def test_a_requeue_in_the_window_ends_it_for_the_job_and_its_neighbours() -> None:
    jobs = (Training(1, ("n1",), 4.0), Training(2, ("n1",), 4.0), Training(3, ("n5",), 4.0))
    earlier = [run(1, 0, 0.0), run(2, 0, 0.0), run(3, 0, 0.0)]
    assert set(observed(*jobs, runs=earlier)) == {1, 2, 3}
    assert set(observed(*jobs, runs=[*earlier, run(2, 1, 315.0)])) == {3}


def test_late_reports_of_an_earlier_run_do_not_count_for_the_new_one() -> None:
    # Given a job that was requeued from n1, n2 to n3, and agents of the nodes that it left, which remember it
    now = Training(1, ("n3",), 4.0, first_seen_s=290.0, restart=1)
    left = Training(1, ("n1", "n2"), 2.0, first_seen_s=100.0)
    beside = Training(2, ("n1",), 3.0)
    found = observed(now, left, beside, runs=[run(1, 0, 90.0), run(1, 1, 288.0), run(2, 0, 0.0)])
    assert (found[1].run, found[1].nodes, found[1].shape) == (RunKey(1, 1), ("n3",), RunShape(1, 1))
    assert found[2].alone


def test_a_run_before_all_known_ones_is_a_neighbour_and_is_not_measured() -> None:
    # Given late reports of a run from before the controller was there to ask Slurm
    found = observed(Training(1, ("n1",), 4.0), Training(2, ("n1",), 3.0), runs=[run(1, 2, 1000.0)])
    assert set(found) == {2}
    assert [other.run.job_id for other in found[2].neighbours] == [1]


# --- one training at a time


@pytest.mark.parametrize(
    "then", [{"signature": "cd" * 32}, {"script": "finetune.py"}, {"batch_size": 64}], ids=["model", "script", "batch"]
)
def test_a_window_in_which_a_job_began_another_training_counts_for_neither(then: dict[str, Any]) -> None:
    # Given a job whose step count goes on while it goes on from one model to the next
    first, second = Training(1, ("n1",), 4.0, batch_size=32), Training(1, ("n1",), 4.0, **{"batch_size": 32, **then})
    beside = Training(2, ("n1",), 3.0)
    turned = [*samples(first)[:3], *samples(second)[3:]]
    found = window_throughputs([*turned, *samples(beside)], 300.0, WINDOW_S, {})
    # Then its neighbour is measured, beside it
    assert [(item.run.job_id, [other.run.job_id for other in item.neighbours]) for item in found] == [(2, [1])]


def test_a_model_that_becomes_known_is_no_other_training() -> None:
    early = [
        replace(sample, trained=Trained(1000, "train.py", "")) for sample in samples(Training(1, ("n1",), 4.0))[:3]
    ]
    (found,) = window_throughputs([*early, *samples(Training(1, ("n1",), 4.0))[3:]], 300.0, WINDOW_S, {})
    assert found.trained == TRAINED


def test_two_programs_that_train_at_once_are_not_one_job_of_two_ranks() -> None:
    (arrival,) = Agents().watch([Training(1, ("n1",), 4.0, ranks=2)], 300.0, 301.0)
    assert not sight_of(arrival).several
    arrival.report.job.ranks[:] = [0, 0]  # a sweep: each is rank 0 of its own
    arrival.report.job.ClearField("world_size")
    assert sight_of(arrival).several
    twice = [replace(sample, several=True) for sample in samples(Training(1, ("n1",), 4.0, ranks=2))]
    assert window_throughputs(twice, 300.0, WINDOW_S, {}) == []


def sight_of(arrival: Arrival) -> Sample:
    found = sighting_of(arrival)
    assert found is not None
    assert found.sample is not None
    return found.sample


# --- models of GPUs


def test_the_shape_has_the_model_of_the_gpus() -> None:
    models = {0: "H100", 1: "H100", 2: "A100"}
    for gpus, wanted in ((2, "H100"), (3, "A100 + H100")):
        arrivals = Agents().watch([Training(1, ("n1",), 4.0, gpus=gpus)], 300.0, 330.0)
        found = [sighting_of(arrival, models) for arrival in arrivals]
        (item,) = window_throughputs([each.sample for each in found if each and each.sample], 300.0, WINDOW_S, {})
        assert item.shape == RunShape(gpus, 1, wanted)


def test_on_cpus_and_where_it_is_not_known_there_is_none() -> None:
    (arrival,) = Agents().watch([Training(1, ("n1",), 4.0, gpus=None)], 300.0, 301.0)
    by_models = [sighting_of(arrival, models) for models in ({0: "H100", 1: "H100"}, {0: "H100", 1: "A100"}, {})]
    assert [found and found.sample and found.sample.gpu_model for found in by_models] == ["H100", "", ""]
    arrival.report.job.device = "cpu"
    found = sighting_of(arrival, {0: "H100"})
    assert found is not None
    assert found.sample is not None
    assert found.sample.gpu_model == ""
