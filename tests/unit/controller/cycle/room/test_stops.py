"""Room for a waiting job: what is stopped for it, and that nothing is where it would not start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.cycle.room.capacity import Capacity, Need, OnNode
from controller.cycle.room.stops import Candidate, Room, room_for
from policies.model import Placement, Split
from tests.unit.controller.examples.build import running

NODES = 4
NEED = Need(8, 1, 1, Split.FIXED, 8, 1.0, 0.0, False, np.ones(NODES, dtype=np.bool_))
"""Eight GPUs and eight CPUs on one node."""


def needs(nodes: int, each: int = 8, **changes: object) -> Need:
    return replace(NEED, num_gpus=nodes * each, min_nodes=nodes, max_nodes=nodes, gpus_per_node=each, **changes)


def candidate(job_id: str, **on: int) -> Candidate:
    shares = tuple(OnNode(int(name[1:]) - 1, gpus, float(gpus), 0.0) for name, gpus in on.items())
    return Candidate(running(job_id, on=dict(on)), shares)


def room(need: Need, *candidates: Candidate, fixed: tuple[Candidate, ...] = ()) -> Room | None:
    """Return the room where the candidates run, and the fixed jobs beside them."""
    free = Capacity(
        np.full(NODES, 8),
        np.full(NODES, 64.0),
        np.full(NODES, 1e6),
        np.zeros(NODES, dtype=np.int64),
        np.zeros(NODES, dtype=np.int64),
    )
    for one in (*candidates, *fixed):
        for share in one.shares:
            free.gpus[share.node] -= share.gpus
            free.cpus[share.node] -= share.cpus
            free.jobs[share.node] += 1
    return room_for(need, free, candidates)


def stopped(found: Room | None) -> list[str]:
    assert found is not None
    return [one.job.key.job_id for one in found.stops]


FULL = tuple(candidate(str(number), **{f"n{number}": 8}) for number in range(1, NODES + 1))


def test_nothing_is_stopped_while_nodes_are_free() -> None:
    found = room(NEED, *FULL[:3])
    assert found == Room(Placement((3,), (8,)), ())


def test_the_first_job_in_slurms_order_is_stopped() -> None:
    assert stopped(room(NEED, *FULL[::-1])) == ["4"]


def test_nothing_is_stopped_where_the_whole_gang_would_still_not_start() -> None:
    assert room(needs(2), FULL[0], fixed=FULL[1:]) is None
    assert room(NEED, fixed=FULL) is None
    assert stopped(room(needs(2), FULL[0], FULL[1], fixed=FULL[2:])) == ["1", "2"]


def test_jobs_that_free_none_of_the_chosen_nodes_stay() -> None:
    # the first in the order makes no room on its own, and is not needed for the others'
    small = candidate("0", n1=4)
    stays = candidate("5", n1=4)
    assert stopped(room(NEED, small, *FULL[1:], fixed=(stays,))) == ["2"]


def test_of_the_jobs_on_the_chosen_node_only_those_that_are_needed_are_stopped() -> None:
    parts = (candidate("1", n1=2), candidate("2", n1=6))
    assert stopped(room(needs(1, 6), *parts, fixed=FULL[1:])) == ["2"]
    assert stopped(room(NEED, *parts, fixed=FULL[1:])) == ["1", "2"]


def test_free_gpus_are_used_before_others_are_freed() -> None:
    found = room(needs(2), *FULL[:3])
    assert found is not None
    assert stopped(found) == ["1"]
    assert found.placement == Placement((0, 3), (8, 8))


def test_only_nodes_that_the_job_may_use_count() -> None:
    only = np.array([False, True, False, False])
    assert stopped(room(replace(NEED, nodes=only), *FULL)) == ["2"]
    assert room(replace(NEED, nodes=only), FULL[0], fixed=FULL[1:]) is None


def test_an_exclusive_job_needs_the_whole_node() -> None:
    shared = (candidate("1", n1=1), candidate("2", n1=1))
    assert stopped(room(needs(1, 1, exclusive=True), *shared, fixed=FULL[1:])) == ["1", "2"]
    assert room(needs(1, 1, exclusive=True), shared[0], fixed=(shared[1], *FULL[1:])) is None


def test_cpus_count_as_well() -> None:
    assert room(needs(1, 1, cpus_per_gpu=70.0), *FULL) is None
    assert stopped(room(needs(1, 1, cpus_per_gpu=60.0), candidate("1", n1=7), fixed=FULL[1:])) == ["1"]


@pytest.mark.parametrize(
    ("changes", "placement"),
    [
        ({"split": Split.EVEN, "max_nodes": 4}, Placement((0, 3), (6, 6))),
        ({"split": Split.ANY, "max_nodes": 4}, Placement((0, 3), (8, 4))),
    ],
)
def test_gpus_that_are_not_fixed_by_node(changes: dict[str, object], placement: Placement) -> None:
    need = replace(NEED, num_gpus=12, gpus_per_node=0, **changes)
    found = room(need, *FULL[:3])
    assert found is not None
    assert (found.placement, stopped(found)) == (placement, ["1"])
