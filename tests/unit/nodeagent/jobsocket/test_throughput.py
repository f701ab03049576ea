"""Steps per second, of one process and of a job, from frames with their times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.jobsocket.throughput import StepThroughput
from nodeagent.wire.frames import Steps
from tests.unit.nodeagent.jobsocket.node import S


def test_two_ranks_in_lockstep(node):
    ranks = [node.connect(rank=1, local_rank=1), node.connect(rank=0)]
    node.train(ranks, 5, 90)
    row = node.row()
    assert (row.job_id, row.uid, row.restart, row.world_size, row.script) == (7, 1000, 0, 2, "train.py")
    assert row.steps == 450
    assert row.steps_per_s == pytest.approx(5.0)
    assert [rank.rank for rank in row.ranks] == [0, 1]
    assert row.num_connected == 2
    assert row.last_step_ns == node.now_ns


def test_the_slowest_rank_is_the_job_s_pace(node):
    fast, slow = node.connect(rank=0), node.connect(rank=1)
    for _ in range(30):
        node.train([fast], 10, 1)
        node.step(slow, node.sent[fast][0] * 8 // 10)
    row = node.row()
    assert row.steps_per_s == pytest.approx(8.0)
    assert row.steps == 240
    assert [rank.steps_per_s for rank in row.ranks] == [pytest.approx(10.0), pytest.approx(8.0)]


def test_the_window_slides(node):
    rank = node.connect(rank=0)
    node.train([rank], 10, 100)
    node.train([rank], 5, 30)
    assert node.row().steps_per_s == pytest.approx(7.5)
    node.train([rank], 5, 30)
    assert node.row().steps_per_s == pytest.approx(5.0)


def test_a_job_that_stands_still_falls_to_nothing(node):
    rank = node.connect(rank=0)
    node.train([rank], 10, 100)
    node.now_s += 1
    assert node.row().steps_per_s == pytest.approx(10.0)  # between two frames, silence means nothing
    seen = []
    for _ in range(62):
        node.now_s += 1
        seen.append(node.row().steps_per_s)
    assert seen == sorted(seen, reverse=True)
    assert seen[28] == pytest.approx(5.0, abs=0.3)
    assert seen[-1] == 0.0
    assert node.row().steps == 1000


def test_silence_between_frames_that_come_seldom_means_nothing():
    pace = StepThroughput(60, interval_s=20)
    assert pace.add(Steps(0, 100, 0, 10 * S, 100, 10.0))
    assert pace.steps_per_s(29 * S) == pytest.approx(9.9)
    assert pace.steps_per_s(60 * S) < 9.9


def test_steps_longer_than_the_window(node):
    rank = node.connect(rank=0)
    node.step(rank, 1)
    for steps in (2, 3, 4):
        node.now_s += 150
        node.step(rank, steps)
    node.now_s += 149
    assert node.row().steps_per_s == pytest.approx(1 / 150)


def test_one_step_is_no_pace(node):
    rank = node.connect(rank=0)
    assert node.row().ranks == ()
    node.step(rank, 1)
    assert node.row().steps_per_s is None
    assert node.row().steps == 1


def test_a_long_run_met_in_the_middle_has_its_pace_at_once(node):
    """After a restart of the agent the first frame covers hours, and its own last second."""
    rank = node.connect(rank=0)
    node.say(
        rank,
        "steps",
        steps=100_000,
        first_ns=1,
        last_ns=node.now_ns,
        window_steps=6,
        window_s=2.0,
    )
    assert node.row().steps_per_s == pytest.approx(3.0)
    assert node.row().steps == 100_000


def test_steps_of_the_future_say_nothing(node):
    rank = node.connect(rank=0)
    node.say(rank, "steps", steps=50, first_ns=1, last_ns=node.now_ns + S)
    assert node.row().steps is None


@given(
    st.lists(
        st.tuples(st.integers(0, 120 * S), st.integers(1, 10**6), st.integers(0, 10**6), st.floats(0, 1e9)),
        max_size=30,
    ),
    st.integers(0, 200 * S),
)
def test_a_pace_is_never_negative_and_never_fails(frames, now_ns):
    """Times and steps of a job may be any numbers."""
    pace = StepThroughput(60)
    for last_ns, steps, window_steps, window_s in frames:
        pace.add(Steps(0, steps, 0, last_ns, window_steps, window_s))
        found = pace.steps_per_s(now_ns)
        assert found is None or found >= 0
