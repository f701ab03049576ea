"""Throughputs of whole jobs from what single nodes saw."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from controller.sights import sighting_of
from controller.windows import Observation, RunKey, Shape, Sight, Trained, observe_window
from tests.unit.controller.reports import SIGNATURE, Agents, Training

WINDOW_S = 30.0
TRAINED = Trained(1000, "train.py", SIGNATURE)


def sights(*jobs: Training, start_s: float = 300.0, every_s: float = 5.0) -> list[Sight]:
    found = [sighting_of(arrival) for arrival in Agents().watch(jobs, start_s, start_s + WINDOW_S, every_s)]
    return [item.sight for item in found if item is not None and item.sight is not None]


def observed(*jobs: Training, present: dict[str, Collection[int]] | None = None) -> dict[int, Observation]:
    return {item.run.job_id: item for item in observe_window(sights(*jobs), 300.0, WINDOW_S, present or {})}


def test_the_rate_is_exact_whatever_the_moments_of_the_reports() -> None:
    found = observed(Training(1, ("n1", "n2"), 0.7, gpus=4, ranks=4))[1]
    assert found.steps_per_s == pytest.approx(0.7, rel=1e-6)
    assert (found.trained, found.shape, found.nodes) == (TRAINED, Shape(8, 2), ("n1", "n2"))
    assert found.alone


def test_the_slowest_node_is_the_job_s_pace() -> None:
    mixed = [
        *sights(Training(1, ("n1", "n2"), 4.0)),
        *sights(Training(1, ("n1", "n2"), 2.0)),
    ]
    pace = [sight for sight in mixed[:12] if sight.node == "n1"] + [sight for sight in mixed[12:] if sight.node == "n2"]
    (found,) = observe_window(pace, 300.0, WINDOW_S, {})
    assert found.steps_per_s == pytest.approx(2.0, rel=1e-6)


def test_jobs_with_a_node_in_common_are_neighbours() -> None:
    found = observed(Training(1, ("n1", "n2"), 4.0), Training(2, ("n2", "n3"), 3.0), Training(3, ("n4",), 1.0))
    assert [other.run for other in found[1].neighbours] == [RunKey(2, 0)]
    assert found[1].neighbours[0].steps_per_s == pytest.approx(3.0, rel=1e-6)
    assert found[1].neighbours[0].shape == Shape(2, 2)
    assert [other.run for other in found[2].neighbours] == [RunKey(1, 0)]
    assert found[3].alone


def test_links_of_the_caller_s_cluster_make_neighbours_too() -> None:
    def links(nodes: Collection[str]) -> set[str]:
        racks = {node[0] for node in nodes}
        return set(nodes) | ({f"uplink {rack}" for rack in racks} if len(racks) > 1 else set())

    jobs = (Training(1, ("a1", "b1"), 4.0), Training(2, ("a2", "c1"), 4.0), Training(3, ("a3", "a4"), 4.0))
    found = {item.run.job_id: item for item in observe_window(sights(*jobs), 300.0, WINDOW_S, {}, links)}
    assert [other.run.job_id for other in found[1].neighbours] == [2]
    assert found[3].alone


def test_a_job_that_reports_nothing_is_a_neighbour_where_it_is_known_to_be() -> None:
    found = observed(Training(1, ("n1", "n2"), 4.0), present={"n2": [1, 77], "n9": [78]})[1]
    assert [(other.run.job_id, other.trained, other.steps_per_s) for other in found.neighbours] == [(77, None, None)]
    assert not found.alone


@pytest.mark.parametrize("edge", [{"start_s": 312.0}, {"end_s": 318.0}])
def test_windows_in_which_somebody_came_or_went_tell_nothing(edge: dict[str, float]) -> None:
    # given a job that is there throughout, and one that is not
    found = observed(Training(1, ("n1",), 4.0), Training(2, ("n1",), 4.0, **edge), Training(3, ("n5",), 4.0))
    # then neither of the two is measured; a third, elsewhere, is
    assert set(found) == {3}


def test_a_job_of_which_a_node_is_missing_is_not_measured() -> None:
    one = [sight for sight in sights(Training(1, ("n1", "n2"), 4.0)) if sight.node == "n1"]
    assert observe_window(one, 300.0, WINDOW_S, {}) == []


def test_a_neighbour_of_which_a_node_is_missing_is_one_all_the_same() -> None:
    seen = [sight for sight in sights(Training(1, ("n1",), 4.0), Training(2, ("n1", "n2"), 4.0)) if sight.node == "n1"]
    (found,) = observe_window(seen, 300.0, WINDOW_S, {})
    assert (found.run.job_id, [other.run.job_id for other in found.neighbours]) == (1, [2])


def test_a_job_that_does_not_step_is_not_measured_but_is_there() -> None:
    found = observed(Training(1, ("n1",), 4.0), Training(2, ("n1",), 1e-6, ranks=1))
    assert set(found) == {1}
    assert [(other.run.job_id, other.steps_per_s) for other in found[1].neighbours] == [(2, None)]


def test_a_lost_report_changes_nothing() -> None:
    whole = sights(Training(1, ("n1",), 3.3))
    for lost in range(1, len(whole) - 1):
        (found,) = observe_window(whole[:lost] + whole[lost + 1 :], 300.0, WINDOW_S, {})
        assert found.steps_per_s == pytest.approx(3.3, rel=1e-6)


def test_the_stall_before_the_window_is_not_in_it() -> None:
    # given a job whose last step before the window was long ago
    seen = sights(Training(1, ("n1",), 4.0))
    stalled = [replace(seen[0], steps=1, last_step_ns=200 * 10**9), *seen[1:]]
    (found,) = observe_window(stalled, 300.0, WINDOW_S, {})
    assert found.steps_per_s == pytest.approx(4.0, rel=1e-6)


def test_without_gpus_the_ranks_are_counted() -> None:
    assert observed(Training(1, ("n1", "n2"), 4.0, gpus=None, ranks=3))[1].shape == Shape(6, 2)


def test_one_order_of_sights_is_as_good_as_another() -> None:
    seen = sights(Training(1, ("n1", "n2"), 4.0), Training(2, ("n2",), 3.0))
    assert observe_window(seen[::-1], 300.0, WINDOW_S, {}) == observe_window(seen, 300.0, WINDOW_S, {})
