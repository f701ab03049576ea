"""Jobs on scattered GPUs: where they go, and that every decision is valid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from policies.api import load_policy
from policies.errors import PolicyLoadError
from policies.model import ClusterState, Split
from policies.placement.best_fit import Capacity
from policies.placement.rules import ANYWHERE
from policies.rule import Layout
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check

WITH_LAYOUT = ["fifo", "fifo-skip", "sjf", "fewest-gpus", "srtf", "las", "tiresias"]


def place(nodes: list[Node], job: Job, *others: Job) -> dict[int, int] | None:
    """The placement of the job beside those that run."""
    placement = ANYWHERE.place(Capacity(cluster(nodes, [*others, job])), len(others))
    return None if placement is None else dict(placement.items())


def test_a_job_is_consolidated_if_possible() -> None:
    assert place([Node()] * 3, Job(gpus=2), Job(gpus=6, occupied={1: 6})) == {1: 2}
    assert place([Node()] * 3, Job(gpus=12), Job(gpus=3, occupied={1: 3})) == {0: 8, 1: 4}


def test_other_jobs_take_the_nodes_with_most_free_gpus_the_lowest_index_on_ties() -> None:
    busy = Job(gpus=17, occupied={0: 6, 1: 4, 2: 7})  # 2, 4 and 1 free
    assert place([Node()] * 3, Job(gpus=5), busy) == {0: 1, 1: 4}
    assert place([Node()] * 3, Job(gpus=7), busy) == {0: 2, 1: 4, 2: 1}
    assert place([Node()] * 3, Job(gpus=8), busy) is None
    assert place([Node()] * 2, Job(gpus=7), Job(gpus=8, occupied={0: 4, 1: 4})) == {0: 4, 1: 3}


def test_limits_on_the_number_of_nodes_are_kept() -> None:
    busy = Job(gpus=17, occupied={0: 6, 1: 4, 2: 7})
    assert place([Node()] * 3, Job(gpus=7, max_nodes=2), busy) is None
    # Three nodes of its own, and the freest gives no more than leaves one for each of the others.
    assert place([Node()] * 3, Job(gpus=6, min_nodes=3), busy) == {0: 1, 1: 4, 2: 1}


def test_equal_shares_stay_equal_and_fixed_ones_fixed() -> None:
    busy = Job(gpus=12, occupied={0: 4, 1: 4, 2: 4})
    assert place([Node()] * 3, Job(gpus=6, split=Split.EVEN, min_nodes=1, max_nodes=3), busy) == {0: 3, 1: 3}
    assert place([Node()] * 3, Job(gpus=10, split=Split.EVEN, min_nodes=1, max_nodes=3), busy) is None
    assert place([Node()] * 3, Job(gpus=10, split=Split.FIXED, min_nodes=2), busy) is None


def test_cpus_and_memory_limit_placements() -> None:
    nodes = [Node(gpus=4, cpus=4, memory_mib=9000), Node(gpus=4, cpus=16, memory_mib=2500), Node(gpus=4)]
    busy = Job(gpus=2, occupied={2: 2})
    job = Job(gpus=5, cpus_per_gpu=4, memory_mib_per_gpu=1000, max_nodes=3)
    assert place(nodes, job, busy) == {0: 1, 1: 2, 2: 2}


def test_exclusive_jobs_take_only_empty_nodes() -> None:
    assert place([Node(gpus=4)] * 3, Job(gpus=7, exclusive=True, min_nodes=2), Job(gpus=1, occupied={0: 1})) == {
        1: 4,
        2: 3,
    }
    assert place([Node(gpus=4)] * 2, Job(gpus=5, exclusive=True), Job(gpus=1, occupied={0: 1})) is None


def test_a_job_is_only_stopped_for_one_that_starts() -> None:
    # By count the newcomer would fit in the running job's GPUs; but it may use n1 only, and a job that cannot be stopped occupies
    # it.
    jobs = [
        Job(gpus=4, occupied={1: 4}, preemptible=False),
        Job(gpus=4, occupied={0: 4}, estimate_s=100),
        Job(gpus=4, estimate_s=1, nodes=frozenset({1})),
    ]
    state = cluster([Node(gpus=4)] * 2, jobs)
    assert set(load_policy("srtf", {"layout": "anywhere"}).decide(state).allocation) == {0, 1}


def test_layout_is_an_option_of_the_ordering_policies() -> None:
    for name in WITH_LAYOUT:
        assert load_policy(name).rule.layout is Layout.CONSOLIDATED  # type: ignore[attr-defined]
        assert load_policy(name, {"layout": "anywhere"}).rule.layout is Layout.ANYWHERE  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["any", "", 1, None])
def test_other_layouts_are_refused_with_those_there_are(value: object) -> None:
    with pytest.raises(PolicyLoadError, match="give consolidated or anywhere"):
        load_policy("srtf", {"layout": value})


@pytest.mark.parametrize("name", WITH_LAYOUT)
@settings(max_examples=40)
@given(state=states())
def test_every_scattered_decision_is_valid(name: str, state: ClusterState) -> None:
    policy = load_policy(name, {"layout": "anywhere"})
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert policy.decide(state) == decision
