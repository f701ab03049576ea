"""Pools of nodes with their queues, from a cluster state."""

import numpy as np

from controller.forecast.pools import Known, pools_of
from policies.rule import Discipline, Order, Rule
from tests.unit.policies.states.cluster import Job, Node, cluster

SKIP = Rule(Order.ARRIVAL, Discipline.SKIP)


def pools(state, rule=SKIP, order=(), limits=None):
    rows = len(state.jobs)
    numbers = np.arange(rows)
    return list(pools_of(state, rule, Known(numbers, numbers, limits or [None] * rows, numbers < 0, order), [2]))


def test_a_pool_has_the_running_jobs_and_then_the_policys_order() -> None:
    state = cluster(
        [Node(8), Node(4)], [Job(gpus=4), Job(gpus=8, occupied={0: 8}, service_s=50.0), Job(gpus=2), Job(gpus=1)]
    )
    (pool,) = pools(state, order=[3, 0], limits=[None, 900.0, None, None])

    assert pool.rows.tolist() == [1, 3, 0, 2] and pool.waiting.tolist() == [3, 0, 2]
    jobs = pool.queue.jobs
    assert jobs.places == {0: ([0], [8])}
    assert jobs.service_s[0] == 50.0 and jobs.limit_s[0] == 900.0 and np.isnan(jobs.limit_s[1:]).all()
    assert [pool.queue.parts[size] for size in jobs.size.tolist()] == [((8, 1),), ((1, 1),), ((4, 1),), ((2, 1),)]


def test_the_time_of_earlier_runs_is_known_apart() -> None:
    # Given a job that runs since 500 s and ran for an hour before, and one that waits after a run of 700 s
    jobs = [Job(gpus=8, occupied={0: 8}, service_s=4100.0), Job(gpus=8, service_s=700.0)]
    (pool,) = pools(cluster([Node(8)], jobs, time_s=1000.0))

    assert pool.queue.jobs.earlier_s is not None
    assert pool.queue.jobs.earlier_s.tolist() == [3600.0, 700.0]


def test_a_rule_that_stops_jobs_keeps_their_submission_in_mind() -> None:
    state = cluster([Node(8)], [Job(gpus=4), Job(gpus=8, occupied={0: 8})])
    (pool,) = pools(state, Rule(Order.REMAINING, Discipline.SELECT))

    assert pool.rows.tolist() == [0, 1]


def test_jobs_that_share_no_node_are_in_pools_of_their_own() -> None:
    left, right = frozenset({0, 1}), frozenset({2})
    state = cluster(
        [Node(8)] * 3,
        [Job(nodes=left), Job(nodes=right), Job(gpus=6, occupied={1: 4, 2: 2}), Job(gpus=1, occupied={0: 1})],
    )
    first, second = pools(state)

    assert (first.rows.tolist(), second.rows.tolist()) == ([2, 3, 0], [2, 1])
    assert first.queue.node_gpus == (8, 8) and second.queue.node_gpus == (8,)
    assert second.queue.jobs.places == {0: ([0], [2])}


def test_sets_that_overlap_make_one_pool() -> None:
    state = cluster([Node(8)] * 3, [Job(nodes=frozenset({0, 1})), Job(nodes=frozenset({1, 2}))])
    (pool,) = pools(state)

    assert pool.queue.node_gpus == (8, 8, 8) and pool.waiting.tolist() == [0, 1]


def test_what_others_use_is_never_free_and_a_drained_node_takes_no_job() -> None:
    state = cluster([Node(8, foreign_gpus=6), Node(8, available=False)], [Job(gpus=2), Job(gpus=4, occupied={1: 4})])
    (pool,) = pools(state)

    assert pool.queue.node_gpus == (2, 4) and pool.queue.node_up == (True, False)


def test_where_no_job_waits_there_is_no_pool() -> None:
    assert pools(cluster([Node(8)], [Job(gpus=2, occupied={0: 2})])) == []
