"""The registry of jobs, from frames with their times: each job has the id that the kernel names."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from nodeagent.identity.peer import JobProcess
from nodeagent.identity.procfs import start_ticks, started_ns
from nodeagent.jobsocket import job_run
from nodeagent.wire.bounds import MAX_STEPS
from nodeagent.wire.frames import parse
from nodeagent.wire.report import CheckpointReport
from tests.unit.nodeagent.jobsocket.node import Node, S
from tests.unit.nodeagent.wire.packets import packet


def test_a_launcher_that_never_steps_is_no_rank(node):
    node.connect(rank=-1, script="torchrun")
    rank = node.connect(rank=0, script="train.py")
    node.train([rank], 2, 10)
    row = node.row()
    assert row.num_connected == 2
    assert [rank.rank for rank in row.ranks] == [0]
    assert row.script == "train.py"
    assert row.steps_per_s == pytest.approx(2.0)


def test_a_job_that_never_steps(node):
    node.connect()
    node.now_s += 3000
    row = node.row()
    assert (row.steps, row.steps_per_s, row.last_step_ns, row.model) == (None, None, None, None)
    assert row.num_connected == 1


def test_facts_come_from_the_lowest_rank_that_reported_them(node):
    first, second = node.connect(rank=0), node.connect(rank=1)
    node.say(second, "model", batch_size=32)
    node.say(second, "profile", step_s=0.3)
    assert (node.row().model.batch_size, node.row().profile.step_s) == (32, 0.3)
    node.say(first, "model", batch_size=16)
    node.say(first, "profile", step_s=0.2)
    node.say(first, "profile", step_s=0.25)
    assert (node.row().model.batch_size, node.row().profile.step_s) == (16, 0.25)


def test_why_a_rank_was_not_profiled_is_reported_until_it_is(node):
    rank = node.connect(rank=0)
    node.train([rank], 1, 3)
    assert node.row().ranks[0].no_profile == ""
    node.say(rank, "no_profile", reason="graph")
    assert node.row().ranks[0].no_profile == "graph"
    node.say(rank, "profile")
    assert node.row().ranks[0].no_profile == ""


def test_each_reason_why_a_run_is_not_profiled_is_logged_once(node):
    """However many processes say so: a job can start new ones all the time."""
    with capture_logs() as logs:
        for pid in range(200, 300):
            rank = node.connect(pid=pid)
            for reason in ("tool", "graph", "tool"):
                node.say(rank, "no_profile", reason=reason)
            node.close(rank)
        node.say(node.connect(pid=300, restart=1), "no_profile", reason="tool")
        node.say(node.connect(job_id=8, pid=301), "no_profile", reason="tool")
    found = [(row["job"], row["pid"], row["reason"]) for row in logs if row["event"] == "job_not_profiled"]
    assert found == [(7, 200, "tool"), (7, 200, "graph"), (7, 300, "tool"), (8, 301, "tool")]


def test_a_rank_that_becomes_known_later(node):
    rank = node.connect(rank=-1, world_size=-1)
    node.train([rank], 1, 3)
    assert node.row().world_size is None
    node.say(rank, "hello", rank=3, world_size=8)
    assert node.row().ranks[0].rank == 3
    assert node.row().world_size == 8


def test_processes_that_went_away(node):
    polite, lost, stays = (node.connect(rank=rank) for rank in range(3))
    node.train([polite, lost, stays], 4, 20)
    node.close(polite, bye=True)
    node.close(lost)
    row = node.row()
    assert (row.num_connected, row.num_ended, row.num_lost) == (1, 1, 1)
    assert [rank.state for rank in row.ranks] == ["ended", "lost", "connected"]
    node.train([stays], 4, 70)
    row = node.row()
    assert [rank.rank for rank in row.ranks] == [2]
    assert (row.num_ended, row.num_lost) == (1, 1)
    assert row.steps_per_s == pytest.approx(4.0)  # of those that are there


def test_a_job_is_forgotten_a_window_after_its_last_process(node):
    rank = node.connect()
    node.close(rank, bye=True)
    node.now_s += 59
    assert node.row().num_connected == 0
    node.now_s += 2
    assert node.rows() == ()


def test_a_lie_about_the_job_is_filed_under_the_true_one(node):
    node.connect(job_id=7)
    node.say(1, "hello", job_id=8)
    node.connect(job_id=9)
    rows = node.rows()
    assert [row.job_id for row in rows] == [7, 9]
    assert [row.claimed_job_ids for row in rows] == [("8",), ()]


def test_lies_are_kept_in_bounds(node):
    rank = node.connect()
    for job_id in range(100, 200):
        node.say(rank, "hello", job_id=job_id)
    assert len(node.row().claimed_job_ids) == 8


def test_a_job_started_again_is_a_new_run(node):
    before = node.connect(rank=0, restart=0)
    node.train([before], 10, 30)
    node.close(before)
    after = node.connect(rank=0, restart=1)
    row = node.row()
    assert (row.restart, row.steps, row.steps_per_s, row.num_lost, row.ranks) == (1, None, None, 0, ())
    node.train([after], 2, 10)
    assert node.row().steps == 20
    assert node.row().steps_per_s == pytest.approx(2.0)


def test_what_is_left_of_the_run_before_is_not_heard(node):
    old = node.connect(rank=0, restart=0)
    new = node.connect(rank=0, restart=1)
    older = node.connect(rank=0, restart=0)
    node.train([old, older], 9, 5)
    assert node.row().steps is None
    node.train([new], 1, 5)
    node.close(old)
    node.close(older)
    row = node.row()
    assert (row.restart, row.steps, row.num_connected, row.num_lost) == (1, 5, 1, 0)


def test_another_user_s_job_of_the_same_id_is_a_new_run(node):
    node.connect(rank=0)
    node.jobs.opened(50, JobProcess(500, 2000, 1, 7, "0", "cgroup"), node.now_ns)
    node.say(50, "hello")
    assert (node.row().uid, node.row().num_connected) == (2000, 1)


def test_the_steps_of_two_programs_in_a_row_add_up(node):
    for _ in range(2):
        ranks = [node.connect(rank=0), node.connect(rank=1)]
        node.train(ranks, 5, 10)
        for rank in ranks:
            node.close(rank, bye=True)
    assert node.row().steps == 100


@pytest.mark.parametrize("pid", [200, 400])
def test_the_facts_of_a_run_are_those_of_its_present_program(node, pid):
    """Also where the pid of the second program is lower, and while the first one's throughput is still in the window."""
    before = node.connect(rank=0, pid=300, script="pretrain.py", world_size=1)
    node.train([before], 10, 5)
    node.say(before, "model", batch_size=128)
    node.say(before, "profile", step_s=0.1)
    node.close(before, bye=True)
    # while the second has not stepped, the row is that of the first, whose steps it counts
    present = node.connect(rank=0, pid=pid, script="finetune.py", world_size=1)
    node.say(present, "model", batch_size=16)
    row = node.row()
    assert (row.steps, row.script, row.model.batch_size, row.profile.step_s) == (50, "pretrain.py", 128, 0.1)
    node.train([present], 2, 3)
    row = node.row()
    assert (row.script, row.model.batch_size, row.profile) == ("finetune.py", 16, None)
    node.say(present, "profile", step_s=0.5)
    assert node.row().profile.step_s == 0.5
    # and after its end
    node.close(present, bye=True)
    row = node.row()
    assert (row.script, row.model.batch_size, row.profile.step_s) == ("finetune.py", 16, 0.5)


def test_each_program_of_a_run_was_first_seen_later_than_the_one_before(node):
    """Also if its process connected before the first step of the run."""
    first, waits = node.connect(rank=0), node.connect(rank=0)
    opened_ns = node.now_ns
    assert node.row().first_seen_ns == opened_ns
    node.train([first], 10, 5)
    assert node.row().first_seen_ns == opened_ns
    node.close(first, bye=True)
    node.train([waits], 10, 5)
    assert node.row().first_seen_ns == opened_ns + 1
    node.close(waits)
    last = node.connect(rank=0)
    opened_ns = node.now_ns
    node.train([last], 10, 5)
    assert node.row().first_seen_ns == opened_ns
    # one that connects again belongs to the present program
    node.close(last)
    again = node.connect(rank=0, pid=100 + last)
    node.sent[again], node.sent[again, "first"] = node.sent[last], node.sent[last, "first"]
    node.train([again], 10, 5)
    assert node.row().first_seen_ns == opened_ns


def test_a_program_that_reports_no_model_has_none(node):
    before = node.connect(rank=0)
    node.train([before], 10, 5)
    node.say(before, "model")
    node.say(before, "profile")
    node.close(before, bye=True)
    present = node.connect(rank=0)
    node.train([present], 2, 5)
    for connected in (True, False):
        assert (node.row().model, node.row().profile) == (None, None)
        if connected:
            node.close(present)


def test_a_profile_is_that_of_the_model_in_the_row(node):
    """The ranks of a pipeline have different models."""
    first, second, third = (node.connect(rank=rank) for rank in range(3))
    node.train([first, second, third], 2, 3)
    node.say(first, "model", signature="aa" * 32)
    node.say(second, "model", signature="bb" * 32)
    node.say(second, "profile", step_s=0.3)
    assert node.row().profile is None
    node.say(third, "model", signature="aa" * 32, batch_size=8)
    node.say(third, "profile", step_s=0.4)
    assert (node.row().model.signature, node.row().profile.step_s) == ("aa" * 32, 0.4)
    node.say(first, "model", signature="aa" * 32, batch_size=16)
    assert node.row().profile is None
    node.say(first, "profile", step_s=0.2)
    assert node.row().profile.step_s == 0.2


@pytest.mark.parametrize("change", [{"batch_size": 64}, {"batch_size": 32, "signature": "bb" * 32}])
def test_a_profile_is_not_that_of_the_model_that_its_process_trains_next(node, change):
    first, second = (node.connect(rank=rank) for rank in range(2))
    node.train([first, second], 2, 3)
    for rank in (first, second):
        node.say(rank, "model", batch_size=32)
        node.say(rank, "profile", step_s=0.4)
    node.say(first, "model", batch_size=32)
    assert node.row().profile.step_s == 0.4
    for rank in (first, second):
        node.say(rank, "model", **change)
    assert (node.row().model.batch_size, node.row().profile) == (change["batch_size"], None)
    node.say(second, "profile", step_s=0.7)
    assert node.row().profile.step_s == 0.7


@pytest.mark.parametrize(
    ("version", "groups", "factor"),
    [
        ("1", [4], 4),
        ("1", [1, 8, 2], 2),  # the smallest group of several ranks, as it is not known which one gathered
        ("1", [], 4),  # all ranks
        ("2", [4], 1),
        ("", [4], 1),
    ],
)
def test_a_hook_that_reports_parts_of_gathered_tensors(node, version, groups, factor):
    rank = node.connect(rank=0, world_size=4, hook_version=version)
    node.train([rank], 2, 3)
    if groups:
        node.say(
            rank,
            "model",
            groups=[{"name": str(name), "size": size, "backend": "nccl"} for name, size in enumerate(groups)],
        )
    used = {"count": 1.0, "bytes": 1000.0, "seconds": 0.1}
    node.say(rank, "profile", kinds={"all_gather": used, "reduce_scatter": used, "all_reduce": used | {"bytes": 2**53}})
    found = {use.kind: use.bytes for use in node.row().profile.kinds}
    assert found == {"all_gather": 1000 * factor, "reduce_scatter": 1000, "all_reduce": 2**53}


def test_a_process_that_connects_again_goes_on_where_it_was(node):
    rank = node.connect(rank=0, pid=300)
    node.train([rank], 5, 20)
    node.close(rank)
    assert node.row().num_lost == 1
    again = node.connect(rank=0, pid=300)
    node.sent[again] = node.sent[rank]
    node.sent[again, "first"] = node.sent[rank, "first"]
    node.train([again], 5, 20)
    row = node.row()
    assert (row.steps, row.num_lost, len(row.ranks)) == (200, 0, 1)
    assert row.steps_per_s == pytest.approx(5.0)


def test_who_is_asked_for_a_profile(node):
    launcher, second, first = node.connect(rank=-1), node.connect(rank=1), node.connect(rank=0)
    node.train([first, second], 1, 1)
    assert node.jobs.stepping(7) == (first, second)
    assert node.jobs.connected(7) == (first, second, launcher)
    assert node.jobs.stepping(8) == ()
    assert {process.pid for process in node.jobs.processes()} == {101, 102, 103}


def test_a_job_that_is_forgotten_may_come_back(node):
    rank = node.connect(rank=0)
    node.jobs.forget(7)
    node.jobs.forget(8)
    node.say(rank, "steps")
    node.close(rank)
    assert node.rows() == ()
    node.connect(rank=0)
    assert node.row().num_connected == 1


def test_frames_of_an_unknown_process(node):
    node.jobs.received(99, parse(packet("hello")), 0)
    node.jobs.received(99, parse(packet("steps")), 0)
    node.jobs.closed(99, 0)
    node.jobs.opened(98, JobProcess(1, 1, 1, 7, "0", "cgroup"), 0)
    node.jobs.closed(98, 0)
    assert node.rows() == ()


def test_how_a_job_can_come_back(node):
    reported = []
    node.jobs.subscribe(reported.append)
    ranks = [node.connect(rank=1, start=300), node.connect(rank=0, start=200)]
    assert node.row().checkpoint is None
    assert (node.row().started_ns, reported) == (None, [])

    node.say(ranks[1], "checkpoint", rank=0, start=40)
    node.say(ranks[0], "checkpoint", rank=1, start=40)
    assert node.row().checkpoint == CheckpointReport((0, 1), 40, None, saving=False)
    node.say(ranks[0], "checkpoint", rank=1, start=40)
    assert reported == [7, 7]
    node.say(ranks[0], "checkpoint", rank=1, start=40, saving=True)
    node.say(ranks[0], "checkpoint", rank=1, start=40, saved=60)
    assert node.row().checkpoint == CheckpointReport((0, 1), 40, 60, saving=False)
    node.say(ranks[1], "checkpoint", rank=0, start=0, saving=True, open=False)
    assert node.row().checkpoint == CheckpointReport((1,), None, 60, saving=True)
    assert len(reported) == 5

    for rank in ranks:
        node.close(rank)
    assert node.row().checkpoint is None


def test_when_a_run_began(node):
    reported = []
    node.jobs.subscribe(reported.append)
    launcher = node.connect(start=1)
    ranks = [node.connect(rank=n, start=200 + n, loaded_ns=(5 + n) * S) for n in (0, 1)]
    node.step(ranks[1], 1)
    row = node.row()
    assert row.started_ns == pytest.approx(started_ns(201), rel=1e-3)
    assert (row.loaded_ns, row.first_step_ns) == (6 * S, node.now_ns)
    node.now_s += 1
    node.step(ranks[0], 3)
    node.step(ranks[1], 3)
    row = node.row()
    assert (row.loaded_ns, row.first_step_ns) == (6 * S, round(node.sent[ranks[1], "first"] * S))
    assert reported == [7]
    node.close(launcher)


@pytest.mark.parametrize("loaded_ns", [0, S, 1001 * S])
def test_a_time_that_cannot_be_is_none(node, loaded_ns):
    rank = node.connect(start=200, loaded_ns=loaded_ns)
    node.say(rank, "checkpoint")
    assert node.row().started_ns is not None
    assert node.row().loaded_ns is None


def test_the_clock_of_processes_is_that_of_the_frames():
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    assert 0 < started_ns(ticks) < time.monotonic_ns()
    assert started_ns(ticks + os.sysconf("SC_CLK_TCK")) - started_ns(ticks) == pytest.approx(S, rel=1e-2)


def test_who_trains(node):
    helper, rank, bare = node.connect(), node.connect(rank=1), node.connect(rank=0)
    node.say(rank, "checkpoint", rank=1)
    node.say(bare, "steps")
    assert [(one.connection, one.rank, one.checkpoint is not None) for one in node.jobs.training_processes(7, 0)] == [
        (bare, 0, False),
        (rank, 1, True),
    ]
    assert node.jobs.training_processes(7, 1) == node.jobs.training_processes(8, 0) == ()
    assert (node.jobs.job_of(helper), node.jobs.job_of(99)) == (7, None)
    node.close(rank)
    assert len(node.jobs.training_processes(7, 0)) == 1


def test_programs_that_claim_many_steps_one_after_the_other_never_claim_too_many(node):
    for _ in range(3):
        rank = node.connect()
        node.say(rank, "steps", steps=MAX_STEPS, first_ns=1, last_ns=node.now_ns)
        assert node.row().steps == MAX_STEPS
        node.close(rank)
        node.now_s += 1


def test_processes_without_end_beside_one_that_trains_are_not_all_remembered(node, monkeypatch):
    monkeypatch.setattr(job_run, "_MAX_PROGRAM", 20)
    stays = node.connect(rank=0)
    node.train([stays], 1, 3)
    for _ in range(20):
        for _ in range(5):
            short = node.connect(rank=1)
            node.say(short, "steps", steps=2, first_ns=1, last_ns=node.now_ns)
            node.close(short)
        node.now_s += 61
        node.say(stays, "steps", steps=100, first_ns=1, last_ns=node.now_ns)
        assert node.row().num_connected == 1
    assert len(node.jobs._runs[7].program) <= 20
    # and the one that trains still belongs to its program, also when it connects again
    node.close(stays)
    assert node.row().steps == 100
    again = node.connect(rank=0, pid=100 + stays)
    node.say(again, "steps", steps=110, first_ns=1, last_ns=node.now_ns)
    assert node.row().steps == 110


def test_of_processes_that_come_and_go_within_a_window_so_many_are_kept(node, monkeypatch):
    monkeypatch.setattr(job_run, "_MAX_CLOSED", 20)
    for number in range(100):
        short = node.connect(rank=0)
        node.say(short, "model", batch_size=number + 1)
        node.step(short, 5)
        node.close(short, bye=True)
        node.now_s += 0.1
    kept = node.jobs._runs[7].processes
    assert list(kept) == list(range(81, 101))  # the newest
    models = [process.model.batch_size for process in kept.values() if process.model is not None]
    assert models == [100]  # that of the present program
    assert not any(process.throughput._points for process in kept.values())
    row = node.row()
    assert (row.num_connected, row.num_ended, len(row.ranks)) == (0, 100, 20)
    assert (row.steps, row.model.batch_size) == (500, 100)


def test_of_the_models_of_connected_processes_those_of_the_lowest_ranks_are_kept(node):
    gone = node.connect(rank=0)
    node.say(gone, "model", batch_size=64)
    node.say(gone, "profile")
    node.close(gone)
    for rank in (*range(50, 0, -1), 0):
        process = node.connect(rank=rank)
        node.say(process, "model", batch_size=rank + 1)
        if rank < 20:
            node.say(process, "profile")
    kept = node.jobs._runs[7].processes
    assert sorted(process.rank for process in kept.values() if process.model is not None) == list(range(8))
    assert node.row().model.batch_size == 1
    # and no profile without its model
    assert sorted(process.rank for process in kept.values() if process.profile is not None) == list(range(8))


def test_a_row_that_cannot_be_made_costs_no_other_job_its_row(node, monkeypatch):
    for job_id in (7, 8, 9):
        rank = node.connect(job_id=job_id)
        node.say(rank, "steps", steps=10, first_ns=1, last_ns=node.now_ns)
    broken = node.jobs._runs[8]
    monkeypatch.setattr(broken, "base_steps", "no number")
    with capture_logs() as logs:
        assert [row.job_id for row in node.rows()] == [7, 9]
        assert [row.job_id for row in node.rows()] == [7, 9]
    assert [(line["job"], line["dropped"]) for line in logs] == [(8, 1)]


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.integers(1, 3), st.integers(0, 2)),
        st.tuples(st.sampled_from(["steps", "bye", "close", "model", "hello"]), st.integers(1, 12), st.integers(1, 50)),
        st.tuples(st.just("wait"), st.integers(1, 90), st.just(0)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_steps_never_fall_within_a_run_and_counts_are_of_what_is_there(events):
    node, open_now, most = Node(), set(), {}
    for kind, number, more in events:
        if kind == "connect":
            open_now.add(node.connect(job_id=number, restart=more, rank=number))
        elif kind == "wait":
            node.now_s += number
        elif number in open_now:
            if kind == "close":
                node.close(number)
                open_now.discard(number)
            elif kind == "steps":
                node.step(number, node.sent.get(number, (0, 0))[0] + more)
            else:
                node.say(number, kind)
        for row in node.rows():
            key = row.job_id, row.restart, row.first_seen_ns
            assert (row.steps or 0) >= most.get(key, 0)
            most[key] = row.steps or 0
            assert row.num_connected <= len(open_now)
