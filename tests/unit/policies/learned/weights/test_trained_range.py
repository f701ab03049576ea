"""The range that weights were trained on: it is in their card, and decisions say how a state leaves it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.api import Decision
from policies.errors import WeightsError
from policies.learned.headway_rl.policy import HeadwayRl
from policies.learned.weights.card import ModelCard, draft
from policies.learned.weights.trained_range import TrainedRange, merged, noted, outside, with_elastic_jobs
from tests.unit.policies.states.cluster import Job, Node, cluster

TRAINED: TrainedRange = {
    "gpus_per_job": (1.0, 4.0),
    "duration_s": (100.0, 1000.0),
    "load": (0.9, 0.9),
    "queue": (0.0, 2.0),
    "nodes": (2.0, 4.0),
    "gpus_per_node": (8.0, 8.0),
}
NODES = [Node(gpus=8)] * 2


def jobs(count: int = 2, gpus: int = 2, duration_s: float = 500.0) -> list[Job]:
    return [Job(gpus=gpus, estimate_s=duration_s) for _ in range(count)]


@pytest.mark.parametrize(
    ("nodes", "waiting", "text"),
    [
        (NODES, jobs(), ""),
        (NODES, jobs(duration_s=50.0), ""),
        (NODES, jobs(duration_s=2000.0), ""),
        (NODES, jobs(4), ""),
        (NODES, jobs() + jobs(1, gpus=8), "1 of 3 jobs request 8 GPUs (trained: 1 to 4)"),
        (
            NODES,
            jobs(1, duration_s=40.0) + jobs(1, duration_s=9e4),
            "2 of 2 jobs are expected to run for 40 to 90,000 s",
        ),
        (NODES, jobs(5), "5 jobs wait (trained: up to 2)"),
        ([Node(gpus=8)], jobs(), "1 nodes (trained: 2 to 4)"),
        ([Node(gpus=8), Node(gpus=4)], jobs(), "4 to 8 GPUs on a node (trained: 8)"),
    ],
)
def test_a_state_is_outside_where_a_quantity_is(nodes: list[Node], waiting: list[Job], text: str) -> None:
    found = outside(TRAINED, cluster(nodes, waiting))
    assert found.startswith(text)
    assert bool(found) is bool(text)


def test_waits_beyond_twice_the_longest_are_outside() -> None:
    trained = TRAINED | {"wait_s": (0.0, 5_000.0)}
    state = cluster(NODES, jobs(), time_s=20_000.0)

    def after(waited_s: float) -> str:
        submitted = np.full(2, state.time_s - waited_s)
        return outside(trained, replace(state, jobs=replace(state.jobs, submit_time_s=submitted)))

    assert after(10_000.0) == ""
    assert after(10_001.0) == "a job has waited for 10,001 s (trained: up to 5,000)"
    # where no job waited in the training, an hour is no failure
    trained["wait_s"] = (0.0, 0.0)
    assert after(3_600.0) == ""
    assert after(3_601.0) == "a job has waited for 3,601 s (trained: up to 0)"


def test_jobs_of_a_fixed_size_are_outside_where_all_were_elastic() -> None:
    mixed = cluster(NODES, [Job(gpus=2), Job(gpus=2, sizes=(1, 4))])
    assert outside(with_elastic_jobs(TRAINED), mixed) == "1 of 2 jobs have a fixed size (trained: none)"
    assert outside(TRAINED | {"elastic_share": (0.5, 1.0)}, mixed) == ""
    assert outside(TRAINED | {"elastic_share": (0.75, 1.0)}, mixed).endswith("(trained: up to 25%)")
    assert outside(with_elastic_jobs(TRAINED), cluster(NODES, [])) == ""
    assert with_elastic_jobs({}) == {}


def test_an_elastic_job_may_run_for_longer_with_fewer_gpus() -> None:
    # 4,000 s with one GPU is as much work as 1,000 s with the four that it requests
    def found(duration_s: float) -> str:
        return outside(TRAINED, cluster(NODES, [Job(gpus=4, sizes=(1, 8), estimate_s=duration_s)]))

    assert found(8_000.0) == ""
    assert found(8_001.0).startswith("1 of 1 jobs are expected to run for 8,001 s")
    assert found(25.0) == ""
    assert found(24.0).startswith("1 of 1 jobs are expected to run for 24 s")


def test_several_quantities_are_named_together() -> None:
    found = outside(TRAINED, cluster([Node(gpus=8)], jobs(6, gpus=8)))
    assert found.count(";") == 2


def test_unknown_durations_and_unknown_ranges_are_not_outside() -> None:
    state = cluster(NODES, [Job(gpus=2)])
    assert outside(TRAINED, state) == ""
    assert outside({}, cluster([Node(gpus=1)], jobs(90, gpus=99))) == ""
    decision = Decision({})
    assert noted(TRAINED, state, decision) is decision
    assert noted(TRAINED, cluster(NODES, jobs(5)), decision).outside == "5 jobs wait (trained: up to 2)"


def test_ranges_are_merged() -> None:
    assert merged([TRAINED, {"nodes": (8.0, 8.0)}])["nodes"] == (2.0, 8.0)
    assert merged([]) == {}


def card(**changed: object) -> ModelCard:
    made = draft(system="a", recipe={}, seed=0, encoder="a/1", shapes=("any",), data="d", data_sha256="0" * 64)
    return replace(made, **changed)  # type: ignore[arg-type] # fields by name


def test_the_card_has_the_range_and_cards_without_one_are_read() -> None:
    with_range = card(trained_range=TRAINED)
    assert ModelCard.from_json(with_range.to_json(), "here") == with_range
    assert json.loads(with_range.to_json())["trained_range"]["nodes"] == [2.0, 4.0]
    older = card()
    assert "trained_range" not in json.loads(older.to_json())
    assert ModelCard.from_json(older.to_json(), "here").trained_range == {}


@pytest.mark.parametrize("wrong", [{"nodes": [4, 2]}, {"nodes": [1]}, {"colour": [1, 2]}, [1, 2], {"nodes": ["a", 2]}])
def test_a_wrong_range_is_refused(wrong: object) -> None:
    values = json.loads(card().to_json()) | {"trained_range": wrong}
    with pytest.raises(WeightsError, match="trained_range is"):
        ModelCard.from_json(json.dumps(values), "here")


def test_a_policy_says_that_it_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = HeadwayRl()
    state = cluster(NODES, jobs(5))
    assert policy.decide(state).outside == "2 nodes (trained: 4 to 8)"
    monkeypatch.setattr(policy, "_trained", TRAINED)
    assert policy.decide(state).outside == "5 jobs wait (trained: up to 2)"
