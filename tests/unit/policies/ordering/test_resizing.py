"""Elastic jobs that find no placement get fewer GPUs in few steps, and the same ones as if each size were tried."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from policies.model import ClusterState, Placement, Split
from policies.ordering import resizing
from policies.ordering.resizing import Resizer, ranges
from policies.placement.best_fit import placement_of
from policies.placement.rules import ANYWHERE, BEST_FIT
from policies.selection import present_placements
from tests.unit.policies.states.cluster import Job, Node, cluster


class Greedy:
    """Shares that depend on the jobs and the free GPUs alone: the least for each, then as much as there is, from a drawn start."""

    def __init__(self, state: ClusterState, seed: int) -> None:
        self._low, self._high = (column.tolist() for column in ranges(state))
        self._seed = seed
        self.calls = 0

    def __call__(self, order: Sequence[int], gpus: int) -> dict[int, int]:
        self.calls += 1
        sizes = {}
        for row in order:
            if self._low[row] <= gpus:
                sizes[row] = self._low[row]
                gpus -= self._low[row]
        for row in random.Random(f"{self._seed} {sorted(order)} {gpus}").sample(sorted(sizes), len(sizes)):
            more = min(gpus, self._high[row] - sizes[row])
            sizes[row] += more
            gpus -= more
        return sizes


def drawn(seed: int) -> ClusterState:
    """A small state: fragmented nodes, elastic jobs of all kinds, some of which run."""
    draw = random.Random(seed)
    size = draw.choice([3, 4, 8])
    nodes = [
        Node(size, draw.choice([0, 8]), available=draw.random() < 0.9, foreign_gpus=draw.choice([0, 0, 1, 2, size - 1]))
        for _ in range(draw.randint(2, 6))
    ]
    free = [node.gpus - node.foreign_gpus for node in nodes]
    jobs = []
    for _ in range(draw.randint(1, 6)):
        split, share = draw.choice([Split.EVEN, Split.EVEN, Split.EVEN, Split.ANY]), draw.randint(1, 2)
        occupied: dict[int, int] = {}
        if draw.random() < 0.4:
            chosen = [node for node in range(len(nodes)) if free[node] >= share][: draw.randint(1, 3)]
            occupied = dict.fromkeys(chosen, share)
            for node in chosen:
                free[node] -= share
        gpus = sum(occupied.values()) or draw.randint(1, 4)
        jobs.append(
            Job(
                gpus,
                split,
                max_nodes=draw.choice([1, 2, len(nodes)]) if not occupied else len(nodes),
                occupied=occupied or None,
                preemptible=draw.random() < 0.8,
                exclusive=not occupied and draw.random() < 0.1,
                cpus_per_gpu=draw.choice([0, 0, 1, 3]),
                nodes=draw.choice([None, None, frozenset(range(len(nodes) - 1))]) if not occupied else None,
                sizes=(draw.randint(1, gpus), draw.randint(gpus, 40)),
            )
        )
    return cluster(nodes, jobs, time_s=1e5)


def one_by_one(state: ClusterState, shares: Greedy, placing: object) -> dict[int, Placement]:
    """The allocation where a job that finds no placement is tried with one GPU less each time, all shares anew."""
    running = state.running
    still = running[~state.jobs.preemptible[running]]
    own = present_placements(state, running)
    places = resizing._Places(state, placing, own, still)  # type: ignore[arg-type]
    least = ranges(state)[0]
    candidates = np.flatnonzero(least <= places.free_gpus)
    order = candidates[~np.isin(candidates, still)].tolist()
    most: dict[int, int] = {}
    while True:
        sizes = shares(order, places.free_gpus)
        sizes.update({row: size for row, size in most.items() if row in sizes and size < sizes[row]})
        coming, fits = places.try_out(sizes)
        failed = {row for row, fit in zip(coming, fits, strict=True) if fit is None}
        if not failed:
            break
        even = state.jobs.split == int(Split.EVEN)
        smaller = {row: sizes[row] - 1 for row in failed if even[row] and sizes[row] > least[row]}
        most |= smaller
        failed -= smaller.keys()
        places.keep(failed & own.keys())
        for row in failed:
            order.remove(row)
    allocation = {row: own[row] for row in sorted(places.kept)} | {row: own[row] for row in sizes if row in own}
    return allocation | {row: placement_of(fit) for row, fit in zip(coming, fits, strict=True) if fit is not None}


@pytest.mark.parametrize("placing", [BEST_FIT, ANYWHERE], ids=lambda rule: rule.name)
def test_the_decision_is_the_same_as_if_each_size_were_tried(placing: object) -> None:
    steps = fewer = 0
    for seed in range(400):
        state = drawn(seed)
        slow, fast = Greedy(state, seed), Greedy(state, seed)
        expected = one_by_one(state, slow, placing)
        assert Resizer(placing, 0.0, "drawn").decide(state, fast).allocation == expected, seed  # type: ignore[arg-type]
        steps, fewer = steps + slow.calls, fewer + fast.calls
    assert fewer < steps  # some of the drawn jobs are tried with several sizes


@pytest.mark.parametrize("wide", [1, 3])
def test_a_wide_job_on_a_fragmented_cluster_takes_few_tries(monkeypatch: pytest.MonkeyPatch, wide: int) -> None:
    # given 300 GPUs that are free on 60 nodes, and jobs that could use all of them
    tries: list[int] = []
    try_out = resizing._Places.try_out

    def counted(places: resizing._Places, sizes: dict[int, int]) -> object:
        tries.append(len(sizes))
        return try_out(places, sizes)

    monkeypatch.setattr(resizing._Places, "try_out", counted)
    nodes = [Node(gpus=8, foreign_gpus=number % 7) for number in range(60)]
    state = cluster(nodes, [Job(1, Split.EVEN, 1, 60, sizes=(1, 480))] * wide, time_s=1e5)
    shares = Greedy(state, 1)
    # when sizes are decided
    decision = Resizer(BEST_FIT, 0.0, "drawn").decide(state, shares)
    # then the policy divides the GPUs once, and few sizes are tried
    assert len(decision.allocation) == wide
    assert shares.calls == 1
    assert len(tries) < 40
