"""Packing placement: the paper's example, its rule by brute force, and the policies' own."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.sched2.state.placements import fewest_nodes
from policies.placement.best_fit import Capacity
from policies.placement.paper_rules import PACKING
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.papers.sched2.packing import pack
from tests.unit.simulator.envs.worlds import trace_of


def rule(free: list[int], gpus: int) -> dict[int, int] | None:
    """Section II-B, sentence by sentence."""
    if sum(free) < gpus:
        return None
    free, chosen = list(free), {}
    while gpus:
        satisfying = [node for node in range(len(free)) if free[node] >= gpus]
        if satisfying:
            node = min(satisfying, key=lambda node: (free[node], node))
        else:
            node = max(range(len(free)), key=lambda node: (free[node], -node))
        chosen[node] = min(free[node], gpus)
        gpus -= chosen[node]
        free[node] = 0
    return chosen


@pytest.mark.parametrize("seed", range(40))
def test_packing_is_the_rule_of_the_paper_and_of_the_policies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 6).tolist() if seed % 2 else [8] * 6
    cluster = cluster_of({"nodes": [{"count": 1, "gpus": size} for size in sizes]})
    wanted = int(rng.integers(1, sum(sizes) + 1))
    occupied = [int(rng.integers(0, size + 1)) for size in sizes]
    trace = trace_of(*((0.0, gpus, 60.0) for gpus in occupied if gpus), (0.0, wanted, 60.0))
    simulation = Simulation(trace, cluster, None)
    simulation.advance()
    loop, busy = simulation.loop, [node for node, gpus in enumerate(occupied) if gpus]
    for node, job in zip(busy, simulation.jobs()[:-1], strict=True):
        loop.dequeue(job)
        loop.start_on(job, [node], [occupied[node]])
    free = [size - gpus for size, gpus in zip(sizes, occupied, strict=True)]
    job = simulation.jobs()[-1]
    where, expected = pack(loop.pool, job), rule(free, wanted)
    assert (where is None) == (expected is None)
    state = simulation.state()
    placement = PACKING.place(Capacity(state), len(state.jobs) - 1)
    assert (where is None) == (placement is None)
    if where is not None and expected is not None and placement is not None:
        assert dict(zip(*where, strict=True)) == expected == dict(placement.items())
        assert where[0] == sorted(where[0])
    assert [size - gpus for size, gpus in zip(sizes, occupied, strict=True)] == list(loop.pool.free)


def test_nodes_that_are_down_are_not_taken() -> None:
    trace = trace_of((0, 1, 60), (5, 6, 60))
    simulation = Simulation(trace, Cluster.uniform(3, 4), None, Settings(changes=(NodeChange(1, 0, "down"),)))
    for _ in range(3):
        simulation.advance()
    job = simulation.jobs()[-1]
    assert pack(simulation.loop.pool, job) == ([1, 2], [4, 2])


def test_fewest_nodes() -> None:
    assert [fewest_nodes((8, 8, 4), gpus) for gpus in (1, 8, 9, 16, 17, 20)] == [1, 1, 2, 2, 3, 3]
