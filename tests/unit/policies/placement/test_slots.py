"""Quick tests of free capacity: they agree with what placing finds."""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState
from policies.placement.best_fit import Capacity
from tests.unit.policies.states.cluster import Job, Node, cluster


def drawn(seed: int) -> ClusterState:
    """Six nodes, partly used, with 64 CPUs each, and waiting jobs."""
    rng = np.random.default_rng(seed)
    nodes = [Node(gpus=8, cpus=64, foreign_gpus=int(rng.integers(0, 9))) for _ in range(6)]
    jobs = [
        Job(
            gpus=int(rng.choice([1, 2, 3, 4, 8])),
            cpus_per_gpu=float(rng.choice([0, 4, 12])),
            exclusive=rng.random() < 0.1,
        )
        for _ in range(8)
    ]
    return cluster(nodes, jobs)


def needed(capacity: Capacity, rows: list[int]) -> list[int]:
    """The slots of s GPUs that the shares of these jobs need, for every s."""
    shares = [share for row in rows for share, count in capacity.requests.of(row).parts for _ in range(count)]
    return [0, *(sum(share // size for share in shares) for size in range(1, 9))]


def test_jobs_that_can_be_laid_out_have_their_slots() -> None:
    outcomes = set()
    for seed in range(300):
        state = drawn(seed)
        capacity = Capacity(state)
        rows = list(range(len(state.jobs)))[: 1 + seed % 8]
        fits = capacity.lay_out(rows) is not None
        slots = capacity.has_slots(needed(capacity, rows))
        outcomes.add((fits, slots))
        assert slots or not fits
    assert outcomes >= {(True, True), (False, False)}


def test_whole_nodes_need_slots_even_where_the_total_suffices() -> None:
    state = cluster([Node(gpus=8, foreign_gpus=4)] * 4, [Job(gpus=8)])
    capacity = Capacity(state)
    assert capacity.total_free() == 16
    assert not capacity.has_slots(needed(capacity, [0]))


def test_the_room_on_a_node_is_that_of_the_list_of_rooms() -> None:
    for seed in range(100):
        state = drawn(seed)
        capacity = Capacity(state)
        capacity.claim([0, 1, 2])
        for row in range(3, len(state.jobs)):
            rooms = dict(capacity.rooms(row))
            assert [capacity.room(row, node) for node in range(6)] == [rooms.get(node, 0) for node in range(6)]
