"""The shadow's queue keeps what its jobs need, and no more, however many jobs have gone by."""

from __future__ import annotations

import math

from policies.learned.shadow import queue as queue_module
from policies.learned.shadow.queue import ShadowQueue
from policies.placement.requests import Requests
from tests.unit.policies.states.cluster import Job, Node, cluster


def test_ends_that_are_no_longer_true_are_forgotten() -> None:
    """Jobs that run for longer than expected have no end until theirs is known: the others end before, for months."""
    steady = Job(gpus=1)
    state = cluster([Node(gpus=8)], [steady])
    queue = ShadowQueue(state, state.jobs.num_gpus * math.inf)
    requests = Requests(state)
    for number in range(3000):
        name, now_s = f"job {number}", queue.time_s
        queue.advance(now_s, [(now_s, name, queue.arriving(requests, 0, 10.0))])
        queue.hold(name)
        queue.advance(now_s + 20.0, [])
        queue.expect(name, 15.0)
        queue.advance(now_s + 21.0, [])
    assert len(queue) == 1
    assert len(queue._ends) <= queue_module._LEAST_KEPT


def test_kinds_of_past_jobs_are_forgotten() -> None:
    """Nodes that come and go make a kind of job with each set of nodes."""
    nodes = [Node(gpus=8)] * 9
    state = cluster(nodes, [Job(gpus=1)])
    queue = ShadowQueue(state, state.jobs.num_gpus * math.inf)
    for number in range(1, 500):
        allowed = frozenset(node for node in range(9) if number >> node & 1)
        name, now_s, requests = f"job {number}", queue.time_s, Requests(cluster(nodes, [Job(gpus=1, nodes=allowed)]))
        queue.advance(now_s, [(now_s, name, queue.arriving(requests, 0, 1.0))])
        queue.advance(now_s + 2.0, [])
    assert len(queue) == 1
    assert len(queue._kinds) <= queue_module._LEAST_KEPT
