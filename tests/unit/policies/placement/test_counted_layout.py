"""Counted layouts: a selection that counts nodes makes the decisions of one that lays out its newcomers on nodes every time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings

from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity, Fit
from policies.placement.counted_layout import CountedLayout, counts_of
from policies.selection import select
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.reference import Cluster

NEVER = 1 << 30
PARTITIONS = (frozenset(range(10)), frozenset(range(10, 24)))


def request(rng: np.random.Generator, kind: str) -> Job:
    """A waiting job; `kind` says what else than GPUs may limit its placement."""
    gpus = int(rng.choice([1, 1, 1, 2, 3, 4, 6, 8, 12, 16]))
    split = Split(int(rng.choice([Split.ANY, Split.ANY, Split.EVEN])))
    return Job(
        gpus=gpus,
        split=split,
        cpus_per_gpu=float(rng.choice({"cpus": [0.0, 4.0, 8.0], "few cpus": [4.0, 12.0]}.get(kind, [0.0]))),
        exclusive=kind == "exclusive" and rng.random() < 0.02,
        nodes={
            "partitions": PARTITIONS[int(rng.integers(2))],
            "overlapping": (None, *PARTITIONS)[int(rng.choice([0, 1, 1, 1, 1, 1]))],
        }.get(kind),
    )


def crowded(seed: int, kind: str) -> ClusterState:
    """24 nodes, one of them unavailable, full of running jobs, and 300 jobs that wait."""
    rng = np.random.default_rng(seed)
    jobs: list[Job] = []
    for node in range(24):
        free = 8
        while free > int(rng.integers(0, 3)):
            gpus = int(rng.integers(1, min(free, 4) + 1))
            free -= gpus
            jobs.append(Job(gpus=gpus, occupied={node: gpus}, preemptible=rng.random() < 0.95))
    jobs += [request(rng, kind) for _ in range(300)]
    nodes = [Node(cpus=64 if "cpus" in kind else 0, available=node != 5) for node in range(24)]
    return cluster(nodes, [jobs[row] for row in rng.permutation(len(jobs))])


@pytest.mark.parametrize("kind", ["gpus", "cpus", "few cpus", "exclusive", "partitions", "overlapping"])
def test_counted_layouts_give_the_decision_of_layouts_on_nodes(kind: str) -> None:
    for seed in range(8):
        state = crowded(seed, kind)
        order = np.random.default_rng(seed).permutation(len(state.jobs))
        counted = select(state, order, counted_from=1)
        laid_out = select(state, order, counted_from=NEVER)
        assert counted == laid_out
        assert list(counted.allocation) == list(laid_out.allocation)
        assert list(counted.reasons) == list(laid_out.reasons)


@settings(max_examples=60)
@given(state=states(max_jobs=24))
def test_counted_layouts_give_the_decision_of_the_reference(state: ClusterState) -> None:
    order = np.argsort(state.jobs.attained_gpu_s, kind="stable")
    found = select(state, order, counted_from=1).allocation
    expected = Cluster(state).select(order.tolist())
    assert {row: dict(placement.items()) for row, placement in found.items()} == expected


def test_few_layouts_on_nodes_are_made_for_many_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given running jobs whose places matter to hundreds of newcomers, no layout is made for each of them."""
    calls: list[int] = []
    lay_out = Capacity.lay_out

    def counting(self: Capacity, rows: Iterable[int]) -> list[Fit] | None:
        calls.append(1)
        return lay_out(self, rows)

    monkeypatch.setattr(Capacity, "lay_out", counting)
    running = [Job(occupied={node: 1}, gpus=1) for node in range(40)]
    state = cluster([Node()] * 50, [Job() for _ in range(200)] + running)
    decision = select(state, np.arange(240))
    assert len(decision.allocation) == 240
    assert len(calls) <= 1


def test_jobs_that_compete_for_some_nodes_only_are_not_counted_together() -> None:
    state = cluster(
        [Node()] * 4, [Job(nodes=frozenset({0, 1})), Job(nodes=frozenset({2})), Job(nodes=frozenset({1, 2}))]
    )
    counted = CountedLayout(Capacity(state))
    requests = Capacity(state).requests
    for row in (0, 1):
        assert counted.counts_on(requests.of(row))
        counted.offer(row, requests.keys[row], requests.of(row))
    assert not counted.counts_on(requests.of(2))


def test_a_running_job_is_kept_only_if_the_newcomers_still_fit() -> None:
    state = cluster([Node()] * 2, [Job(gpus=8), Job(gpus=4)])
    capacity = Capacity(state)
    counted = CountedLayout(capacity)
    for row in (0, 1):
        counted.offer(row, capacity.requests.keys[row], capacity.requests.of(row))
    assert counted.rows == [0, 1]
    assert counted.keep(capacity.changes(0, Placement((0,), (4,))))
    assert not counted.keep([(1, 8, 7)])


def test_counts_are_the_nodes_by_free_gpus() -> None:
    state = cluster([Node(), Node(foreign_gpus=7), Node(foreign_gpus=8), Node()], [])
    counts = counts_of(Capacity(state).levels, 0b0111)
    assert counts == 1 + (1 << 7 * 24)
