"""Nodes that a worker can have: only those from which the rest of the job still fits."""

from __future__ import annotations

import pytest

from policies.learned.marl.serving.room import Room
from policies.model import Split
from tests.unit.policies.states.cluster import Job, Node, cluster

FREE = (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("job", "own", "nodes"),
    [
        (Job(gpus=4), {}, [0, 1, 2, 3]),
        (Job(gpus=4, max_nodes=1), {}, [3]),
        (Job(gpus=6, max_nodes=2), {}, [1, 2, 3]),
        (Job(gpus=6, max_nodes=2), {0: 1}, [0, 3]),
        (Job(gpus=7, max_nodes=2), {0: 1}, []),
        (Job(gpus=6, max_nodes=2), {2: 1}, [1, 2, 3]),
        (Job(gpus=11), {}, []),
        (Job(gpus=3, min_nodes=3), {0: 1}, [1, 2, 3]),
        (Job(gpus=4, split=Split.FIXED, min_nodes=2, max_nodes=2), {}, [1, 2, 3]),
        (Job(gpus=4, split=Split.FIXED, min_nodes=2, max_nodes=2), {3: 2}, [1, 2]),
        (Job(gpus=1, exclusive=True), {}, []),
        (Job(gpus=1, nodes=frozenset({0, 2})), {}, [0, 2]),
    ],
)
def test_nodes_from_which_the_rest_of_the_job_fits(job: Job, own: dict[int, int], nodes: list[int]) -> None:
    busy = [Job(gpus=4 - free, occupied={node: 4 - free}) for node, free in enumerate(FREE) if free < 4]
    # the last node has a job of another user, without GPUs
    state = cluster([*[Node(4)] * 3, Node(4, foreign_memory_mib=1)], [*busy, job])
    room = Room(state)
    for node, gpus in own.items():
        room.put(3, node, gpus, is_first=True)
        room.gpus[node] += gpus  # FREE is what is free beside these
    assert room.of_worker(3, own).nonzero()[0].tolist() == nodes
