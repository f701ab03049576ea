"""Stops that belong together: no more and no fewer than somebody needs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.cycle.decision.stop_groups import StopGroup, stop_groups

NODES = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple)
STOPS = st.dictionaries(st.integers(0, 19), NODES, max_size=8)
WAITING = st.lists(NODES, max_size=5).map(lambda places: [(100 + number, at) for number, at in enumerate(places)])


@st.composite
def plans(draw):
    """Nodes that jobs leave, that others wait for, and where some of the former are to go."""
    held = draw(STOPS)
    moved = draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    return held, draw(WAITING), {row: draw(NODES) for row in moved}


def test_a_job_on_four_nodes_needs_every_job_there_stopped():
    held = {3: (0,), 4: (1,), 5: (2,), 6: (3,), 7: (4,)}
    assert stop_groups(held, [(9, (0, 1, 2, 3))], {}) == (StopGroup((3, 4, 5, 6), 9), StopGroup((7,), None))


def test_the_first_job_of_the_queue_comes_first_and_groups_may_share_a_job():
    held = {1: (0, 1), 2: (2,), 3: (3,)}
    found = stop_groups(held, [(8, (3,)), (9, (1, 2)), (7, (0,)), (6, (3,)), (5, (4,))], {})
    assert found == (StopGroup((3,), 8), StopGroup((1, 2), 9), StopGroup((1,), 7))


def test_jobs_that_change_places_go_together():
    held = {1: (0,), 2: (1,), 3: (2,), 4: (3,)}
    assert stop_groups(held, [], {1: (1,), 2: (0,), 3: (5,)}) == (
        StopGroup((1, 2), None),
        StopGroup((3,), None),
        StopGroup((4,), None),
    )


def test_a_job_that_waits_for_a_move_also_needs_the_stops_on_the_new_nodes():
    held = {1: (0,), 2: (1,), 3: (2,)}
    assert stop_groups(held, [(9, (0,))], {1: (1,), 2: (2,), 3: (4,)}) == (StopGroup((1, 2, 3), 9),)


@given(plans())
def test_every_stop_is_in_a_group_and_no_two_groups_are_equal(plan):
    held, _, _ = plan
    groups = stop_groups(*plan)
    assert {row for group in groups for row in group.rows} == held.keys()
    assert len({group.rows for group in groups}) == len(groups)
    assert all(list(group.rows) == [row for row in held if row in group.rows] for group in groups)


@given(plans())
def test_with_the_whole_group_stopped_its_job_starts_and_moved_jobs_fit(plan):
    held, waiting, moves = plan
    for group in stop_groups(*plan):
        left = {node for row, nodes in held.items() if row not in group.rows for node in nodes}
        wanted = [nodes for job, nodes in waiting if job == group.needed_by]
        wanted += [moves[row] for row in group.rows if row in moves]
        assert not any(left.intersection(nodes) for nodes in wanted)


@given(plans())
def test_every_job_of_a_group_is_needed(plan):
    held, waiting, moves = plan
    for group in stop_groups(*plan):
        if group.needed_by is None:
            continue
        for spared in group.rows:
            # Every job left is reached from the waiting job over nodes that are needed: while it stays, one of these is taken.
            wanted = {node for job, nodes in waiting if job == group.needed_by for node in nodes}
            wanted |= {node for row in group.rows if row != spared for node in moves.get(row, ())}
            assert wanted.intersection(held[spared])


@given(plans())
def test_every_waiting_job_has_its_group_in_the_order_of_the_queue(plan):
    held, waiting, _ = plan
    groups = stop_groups(*plan)
    for _, nodes in waiting:
        needed = {row for row, own in held.items() if set(own).intersection(nodes)}
        assert not needed or any(needed <= set(group.rows) for group in groups)
    places = [len(waiting) if group.needed_by is None else group.needed_by - 100 for group in groups]
    assert all(first <= then for first, then in pairwise(places))
