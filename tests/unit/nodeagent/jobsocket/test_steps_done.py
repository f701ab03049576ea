"""The steps that a job has done in the end, from the frames of its programs to the progress that the controller counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.preempt.reports.job_reports import ReportTable
from controller.profiles.windows import RunKey
from nodeagent.jobsocket.steps_done import StepsDone
from nodeagent.uplink.encode import job_message
from nodeagent.wire.bounds import MAX_STEPS
from tests.unit.nodeagent.jobsocket.node import Node


def begin(node: Any, start: int | None = None, ranks: int = 1, restart: int = 0) -> list[int]:
    """Begin a program of so many ranks that resumed after `start` steps; None: it registers no checkpoints."""
    found = [node.connect(rank=rank, world_size=ranks, restart=restart) for rank in range(ranks)]
    for rank, connection in enumerate(found) if start is not None else ():
        node.say(connection, "checkpoint", rank=rank, world_size=ranks, start=start)
    return found


def end(node: Any, ranks: list[int]) -> None:
    for rank in ranks:
        node.close(rank)


def done(node: Any, restart: int = 0) -> int | None:
    """Return the steps done, as the controller counts them from the agent's report."""
    table = ReportTable()
    report: Any = SimpleNamespace(time_s=node.now_s, monotonic_ns=node.now_ns)
    table.take("n1", job_message(node.row(), report))
    found = table.of(RunKey(7, restart))["n1"]
    return None if found.steps is None else found.steps_done


def test_steps_that_a_crash_lost_are_not_counted_twice(node: Any) -> None:
    # given a program of two ranks that has made 1,000 steps and saved after 900, and is started again in the same run of the job
    ranks = begin(node, start=0, ranks=2)
    node.train(ranks, 10, 100)
    assert done(node) == 1000
    end(node, ranks)
    assert done(node) == 1000
    # when it goes on from its checkpoint
    ranks = begin(node, start=900, ranks=2)
    assert done(node) == 1000
    node.train(ranks, 10, 1)
    assert done(node) == 910
    node.train(ranks, 10, 29)
    assert (done(node), node.row().steps) == (1200, 1300)
    # then the same once more, from a later checkpoint
    node.close(ranks[0])
    assert done(node) == 1200
    node.close(ranks[1])
    ranks = begin(node, start=1100, ranks=2)
    node.train(ranks, 10, 10)
    assert done(node) == 1200


def test_a_requeued_job_whose_program_begins_again_in_its_run(node: Any) -> None:
    ranks = begin(node, start=5000, restart=1)
    assert done(node, restart=1) is None
    node.train(ranks, 10, 10)
    assert done(node, restart=1) == 5100
    end(node, ranks)
    assert done(node, restart=1) == 5100
    ranks = begin(node, start=5050, restart=1)
    node.train(ranks, 10, 10)
    assert done(node, restart=1) == 5150


def test_steps_of_programs_that_begin_anew_are_added(node: Any) -> None:
    for _ in range(2):
        ranks = begin(node, start=0)
        node.train(ranks, 10, 10)
        end(node, ranks)
    ranks = begin(node)
    node.train(ranks, 10, 10)
    end(node, ranks)
    assert done(node) == 300
    # also when the last one of them begins again at its own checkpoint
    ranks = begin(node, start=0)
    node.train(ranks, 10, 10)
    end(node, ranks)
    ranks = begin(node, start=50)
    node.train(ranks, 10, 10)
    assert done(node) == 450


def test_a_program_that_reports_its_checkpoint_after_its_first_steps(node: Any) -> None:
    ranks = begin(node, start=0)
    node.train(ranks, 10, 10)
    end(node, ranks)
    ranks = begin(node)
    node.train(ranks, 10, 1)
    node.say(ranks[0], "checkpoint", rank=0, world_size=1, start=80)
    assert done(node) == 90


def test_after_a_restart_of_the_agent_a_resumed_program_has_done_the_same_steps(node: Any) -> None:
    ranks = begin(node, start=0)
    node.train(ranks, 10, 10)
    end(node, ranks)
    ranks = begin(node, start=80)
    node.train(ranks, 10, 10)
    before = done(node)
    # when a new agent hears only of the program that runs
    made: Any = Node
    fresh: Any = made()
    fresh.now_s = node.now_s
    again = begin(fresh, start=80)
    fresh.sent[again[0]], fresh.sent[again[0], "first"] = node.sent[ranks[0]], node.sent[ranks[0], "first"]
    fresh.train(again, 10, 1)
    assert (before, done(fresh)) == (180, 190)


PROGRAMS = st.lists(st.tuples(st.sampled_from([0, 1, 40, MAX_STEPS]), st.lists(st.integers(0, MAX_STEPS), max_size=4)))


@given(PROGRAMS)
def test_the_total_is_bounded_and_falls_only_when_a_program_resumes(programs: list[tuple[int, list[int]]]) -> None:
    steps_done = StepsDone()
    for start, counts in programs:
        before = steps_done.total
        steps_done.begin_program()
        assert steps_done.total == before
        least = 0 if start else before
        for count in sorted(counts):
            steps_done.note(start, count)
            assert least <= steps_done.total <= MAX_STEPS
            least = steps_done.total
