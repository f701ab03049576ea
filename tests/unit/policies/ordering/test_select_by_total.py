"""Selection by the total of GPUs: the shortened count gives what counting job by job gives."""

from __future__ import annotations

import numpy as np
import pytest

from policies.model import ClusterState
from policies.ordering import select_by_total as module
from policies.placement.best_fit import Capacity
from policies.selection import present_placements
from tests.unit.policies.states.cluster import Job, Node, cluster


def busy(seed: int, *, exclusive: bool = False) -> ClusterState:
    """Five nodes, one of them unavailable, with running jobs on one or two of them, and waiting ones."""
    rng = np.random.default_rng(seed)
    free = [8] * 5
    jobs: list[Job] = []
    for _ in range(12):
        one, other = rng.choice(5, 2, replace=False).tolist()
        gpus = int(rng.integers(1, 4))
        occupied = {one: gpus, other: 1} if rng.random() < 0.4 else {one: gpus}
        if all(free[node] >= count for node, count in occupied.items()):
            for node, count in occupied.items():
                free[node] -= count
            jobs.append(Job(gpus=sum(occupied.values()), occupied=occupied, exclusive=exclusive and not jobs))
    jobs += [Job(gpus=int(gpus)) for gpus in rng.integers(1, 9, 20)]
    return cluster([Node(available=node != 3) for node in range(5)], [jobs[row] for row in rng.permutation(len(jobs))])


def test_both_counts_select_the_same_jobs() -> None:
    for seed in range(40):
        state = busy(seed)
        order = np.random.default_rng(seed).permutation(len(state.jobs)).tolist()
        own = present_placements(state, state.running)
        nothing = Capacity(state, staying=state.running[:0])
        needed = module._needed_gpus(nothing, own)
        assert needed is not None
        refused = {row for row in state.pending.tolist() if row % 5 == 0}
        short = module._count_off_fixed_needs(nothing.total_free(), order, own, needed, refused)
        assert short == module._count_off(nothing, order, own, refused)


@pytest.mark.parametrize("seed", range(3))
def test_beside_exclusive_jobs_every_job_is_counted_when_its_turn_comes(seed: int) -> None:
    state = busy(seed, exclusive=True)
    own = present_placements(state, state.running)
    assert module._needed_gpus(Capacity(state, staying=state.running[:0]), own) is None
