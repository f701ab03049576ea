"""Reports are kept in order until acknowledged, within bounds."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.uplink.outbox import Outbox
from protos.headway.v1 import agent_pb2


def report(size: int = 0) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(answer=agent_pb2.CommandAnswer(problem="x" * size))


def row(job_id: int, size: int = 0) -> agent_pb2.AgentReport:
    job = agent_pb2.JobName(job_id=job_id)
    return agent_pb2.AgentReport(job=agent_pb2.JobReport(job=job, script="x" * size))


def profile(job_id: int, restart: int = 0, size: int = 1000) -> agent_pb2.AgentReport:
    job = agent_pb2.JobName(job_id=job_id, restart=restart)
    return agent_pb2.AgentReport(profile=agent_pb2.JobProfile(job=job, script="x" * size))


def ended(job_id: int, restart: int = 0) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=agent_pb2.JobName(job_id=job_id, restart=restart)))


def rows_of(outbox: Outbox, job_id: int) -> int:
    """Return the number of rows of a job that are not acknowledged."""
    items = [item for number in pending(outbox) if (item := outbox.after(number - 1))]
    return sum(item.WhichOneof("kind") == "job" and item.job.job.job_id == job_id for item in items)


def pending(outbox: Outbox) -> list[int]:
    found: list[int] = []
    while (item := outbox.after(found[-1] if found else 0)) is not None:
        found.append(item.number)
    return found


def test_reports_stay_until_acknowledged() -> None:
    outbox = Outbox()
    for _ in range(4):
        assert outbox.put(report())
    outbox.acknowledge(2)
    assert pending(outbox) == [3, 4]
    outbox.acknowledge(1)  # late
    assert (pending(outbox), outbox.acknowledged) == ([3, 4], 2)
    outbox.acknowledge(4)
    assert (pending(outbox), len(outbox), outbox.last) == ([], 0, 4)


def test_for_want_of_room_the_oldest_go_but_not_those_to_be_kept() -> None:
    outbox = Outbox(limit_bytes=5 * 1250)
    outbox.put(report(1000))
    outbox.put(report(1000), keep=True)
    for _ in range(5):
        assert outbox.put(report(1000))
    assert pending(outbox) == [2, 4, 5, 6, 7]
    assert outbox.dropped == 2
    last = outbox.after(6)
    assert last is not None
    assert last.dropped == 2


def test_where_all_is_to_be_kept_a_new_one_finds_no_room_and_is_counted() -> None:
    outbox = Outbox(limit_bytes=2 * 1250)
    assert outbox.put(report(1000), keep=True)
    assert outbox.put(report(1000), keep=True)
    assert not outbox.put(report(1000), keep=True)
    assert not outbox.put(report(1000))
    assert (pending(outbox), outbox.dropped, outbox.last) == ([1, 2], 2, 4)


# --- reports that jobs can cause


def test_of_one_run_the_newest_profile_is_kept() -> None:
    outbox = Outbox()
    for item in (profile(1), profile(2), profile(1, restart=1), ended(1), profile(1), ended(1, restart=1)):
        assert outbox.put(item, keep=True)
    assert pending(outbox) == [2, 3, 4, 5, 6]
    assert outbox.dropped == 1
    outbox.acknowledge(5)
    assert outbox.put(profile(1), keep=True)  # those before are stored: nothing is given up for it
    assert (pending(outbox), outbox.dropped) == ([6, 7], 1)


def test_a_job_that_makes_up_runs_and_profiles_takes_its_share_and_no_more() -> None:
    # Given a controller that is down, an agent with reports of all its jobs, and one job that never stops
    limit = 16 * 10_000
    outbox = Outbox(limit_bytes=limit)
    for job_id in range(2, 8):
        outbox.put(profile(job_id), keep=True)
        outbox.put(ended(job_id), keep=True)
    outbox.put(report(1000), keep=True)
    others = pending(outbox)
    for restart in range(500):
        assert outbox.put(profile(1, restart, size=3000), keep=True)
        assert outbox.put(ended(1, restart), keep=True)
        outbox.put(report(500))
    # then what it has there is new, and everything of the others is there
    left = [item for number in pending(outbox) if (item := outbox.after(number - 1))]
    assert set(others) <= {item.number for item in left}
    its = [item for item in left if 1 in (item.profile.job.job_id, item.ended.job.job_id)]
    assert sum(item.ByteSize() for item in its) <= limit / 16
    assert its[-1].ended.job.restart == 499


def test_where_profiles_fill_all_the_job_that_takes_most_gives_way() -> None:
    outbox = Outbox(limit_bytes=20_000)
    outbox.put(report(1000), keep=True)
    for job_id in range(1, 30):
        assert outbox.put(profile(job_id, size=2000), keep=True)
    assert outbox.put(report(9000), keep=True)
    kept = pending(outbox)
    assert (kept[0], kept[-1]) == (1, 31)
    assert len(kept) + outbox.dropped == 31


@pytest.mark.parametrize("kept", [0, 30], ids=["rows only", "beside reports to be kept"])
def test_a_job_with_many_large_rows_does_not_displace_those_of_others(kept: int) -> None:
    """A model with many long names of groups repeats them in each row; a job whose saves begin again and again has more rows."""

    def outage(large_rows: int) -> Outbox:
        outbox = Outbox(limit_bytes=200_000)
        for _ in range(kept):
            outbox.put(report(3000), keep=True)
        for _ in range(400):
            outbox.put(report(600))
            for job_id in range(8):
                outbox.put(row(job_id, 300))
            for _ in range(large_rows):
                outbox.put(row(99, 5000))
        return outbox

    usual, crowded = outage(large_rows=0), outage(large_rows=6)
    for job_id in range(8):
        assert rows_of(crowded, job_id) > 0.8 * rows_of(usual, job_id)
    assert rows_of(crowded, 99) > 0


def test_the_rows_of_usual_jobs_are_dropped_in_their_order_with_those_about_the_node() -> None:
    outbox = Outbox(limit_bytes=100_000)
    for _ in range(200):
        outbox.put(report(2000))
        outbox.put(row(7, 600))
    assert outbox.dropped > 200
    assert pending(outbox) == list(range(outbox.dropped + 1, 401))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3000), st.booleans(), st.sampled_from([None, 1, 2, 3])),
        st.tuples(st.just("ack"), st.integers(0, 60)),
    ),
    max_size=80,
)


@given(ACTIONS)
def test_every_report_is_pending_acknowledged_or_counted_as_dropped(actions: list[tuple]) -> None:
    limit = 10_000
    outbox, kept, acknowledged = Outbox(limit_bytes=limit), set(), 0
    sizes: dict[int, int] = {}
    for action in actions:
        if action[0] == "put":
            item = report(action[1]) if action[3] is None else row(action[3], action[1])
            if outbox.put(item, keep=action[2]) and action[2]:
                kept.add(item.number)
            sizes[item.number] = item.ByteSize()
        else:
            acknowledged = max(acknowledged, min(action[1], outbox.last))
            outbox.acknowledge(action[1])
        left = pending(outbox)
        assert left == sorted(left)
        assert all(number > outbox.acknowledged for number in left)
        assert {number for number in kept if number > outbox.acknowledged} <= set(left)
        assert sum(sizes[number] for number in left) <= limit
        # dropped ones may lie below what was acknowledged later: never fewer than the gaps
        assert outbox.last - outbox.acknowledged - len(left) <= outbox.dropped
        assert outbox.acknowledged == acknowledged


async def test_a_waiting_reader_is_woken() -> None:
    outbox = Outbox()
    waiting = asyncio.create_task(outbox.wait_after(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put(report())
    assert [item.number for item in await waiting] == [1]
    waiting = asyncio.create_task(outbox.wait_after(1))
    await asyncio.sleep(0)
    outbox.put(report())
    assert [item.number for item in await waiting] == [2]


async def test_what_waits_goes_together_as_far_as_there_is_room() -> None:
    outbox = Outbox()
    for size in (10, 10, 1000, 10, 5000, 10):
        outbox.put(report(size))
    batches, last = [], 0
    while last < 6:
        batches.append([item.number for item in await outbox.wait_after(last, most_bytes=1100)])
        last = batches[-1][-1]
    assert batches == [[1, 2, 3, 4], [5], [6]]


def test_runs_have_different_names() -> None:
    assert Outbox().run_id != Outbox().run_id
