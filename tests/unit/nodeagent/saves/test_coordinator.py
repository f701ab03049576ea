"""Saves that the controller requests, carried out by the agent, from frames with their times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.identity.peer import JobProcess
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.saves.coordinator import SaveAnswer, SaveCoordinator, SaveRequest
from nodeagent.wire.frames import parse
from nodeagent.wire.reasons import Reason
from tests.unit.nodeagent.wire.packets import packet

S = 1_000_000_000
JOB = 7


class Desk:
    """The coordinator of an agent that has run for long, with its requests and answers. Times are in seconds."""

    def __init__(self):
        self.now_s = 1000.0
        self.jobs = JobRegistry()
        self.posted = []
        self.answers = []
        self.ranks = {}
        """Rank → connection."""
        self.connections = 0
        self.start_agent(ago_s=100.0)

    def start_agent(self, ago_s=0.0):
        self.jobs = JobRegistry()
        self.saves = SaveCoordinator(self.jobs, self, self.answers.append, round((self.now_s - ago_s) * S))

    def request_save(self, connection, save_id, still_s, why):
        self.posted.append(("save", connection, save_id))
        return True

    def request_go_on(self, connection, save_id):
        self.posted.append(("go on", connection, save_id))
        return True

    def take(self):
        """Return the requests that were sent since the last call."""
        posted, self.posted = self.posted, []
        return posted

    def say(self, connection, kind, **fields):
        frame, now_ns = parse(packet(kind, **fields)), round(self.now_s * S)
        self.jobs.received(connection, frame, now_ns)
        self.saves.received(connection, frame, now_ns)

    def connect(self, rank=0, world=2, job=JOB, *, checkpoint=True, restart=0, **fields):
        self.connections += 1
        process = JobProcess(100 + rank, 1000, 1 + restart, job, "0", "cgroup")
        self.jobs.opened(self.connections, process, round(self.now_s * S))
        self.say(self.connections, "hello", rank=rank, world_size=world, restart=restart)
        if checkpoint:
            self.say(self.connections, "checkpoint", rank=rank, world_size=world, **fields)
        else:
            self.say(self.connections, "steps")
        self.ranks[rank] = self.connections
        return self.connections

    def leave(self, rank, *, bye=False):
        if bye:
            self.say(self.ranks[rank], "bye")
        self.jobs.closed(self.ranks[rank], round(self.now_s * S))
        self.saves.closed(self.ranks[rank], round(self.now_s * S))

    def saved(self, rank, step=40, save_id="p1.1", problem="", world=2, own=False):
        self.say(self.ranks[rank], "checkpoint", rank=rank, world_size=world, saving=True, saved=step)
        self.say(self.ranks[rank], "saved", id=save_id, step=step, complete=not problem, problem=problem, own=own)

    def ask(self, save_id="p1.1", job=JOB, restart=0, within_s=60.0):
        self.saves.start(SaveRequest(save_id, job, restart, within_s, 120.0), round(self.now_s * S))

    def wait(self, seconds):
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            self.saves.tick(round(self.now_s * S))

    @property
    def problem(self):
        [answer] = self.answers
        return answer.problem


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def two(desk):
    desk.connect(0)
    desk.connect(1)
    return desk


DONE = SaveAnswer("p1.1", "", (0, 1), 2, 40)


def test_it_is_answered_when_the_last_rank_has_saved(two):
    two.ask()
    assert two.take() == [("save", two.ranks[0], "p1.1"), ("save", two.ranks[1], "p1.1")]
    two.saved(1)
    assert two.answers == []
    two.saved(0)
    assert two.answers == [DONE]
    assert not two.saves.open
    assert two.take() == []


def test_asked_again_it_is_carried_out_once(two):
    two.ask()
    two.take()
    two.ask()
    assert two.take() == []
    two.saved(0)
    two.saved(1)
    two.ask()
    assert two.answers == [DONE, DONE]
    assert two.take() == []


def test_asked_again_once_a_rank_trains_on_it_is_no_longer_true(two):
    two.ask()
    two.saved(0)
    two.saved(1)
    two.say(two.ranks[1], "checkpoint", rank=1, saved=40)
    two.ask()
    assert two.answers == [DONE, SaveAnswer("p1.1", "ranks have trained on since", reason=Reason.TRAINED_ON)]


def test_a_rank_that_trains_on_before_the_others_have_saved(two):
    two.ask()
    two.saved(0)
    two.say(two.ranks[0], "checkpoint", rank=0, saved=40)
    two.wait(0.1)
    assert two.problem == "rank 0 has trained on since"


def test_frames_that_are_lost_are_sent_again(two):
    two.ask()
    two.saved(1)
    two.take()
    two.wait(2.1)
    assert two.take() == [("save", two.ranks[0], "p1.1")] * 2


def test_a_rank_that_connects_again_is_asked_again(two):
    two.ask()
    two.leave(0)
    two.wait(1.5)
    two.take()
    two.connect(0, saving=True)
    two.wait(0.1)
    assert ("save", two.ranks[0], "p1.1") in two.take()
    two.saved(0)
    two.saved(1)
    assert two.answers == [DONE]


@pytest.mark.parametrize("bye", [True, False])
def test_a_rank_that_does_not_come_back_is_gone(two, bye):
    two.ask()
    two.saved(0)
    two.leave(1, bye=bye)
    two.wait(1.5)
    assert two.answers == []
    two.take()
    two.wait(1.0)
    assert two.problem == "rank 1 is gone"
    assert two.take() == [("go on", two.ranks[0], "p1.1")]


def test_a_rank_that_is_late(two):
    two.ask(within_s=10.0)
    two.saved(1)
    two.wait(9.5)
    assert two.answers == []
    two.take()
    two.wait(1.0)
    assert two.problem == "rank 0 did not save within 10 s"
    assert two.take()[-2:] == [("go on", two.ranks[0], "p1.1"), ("go on", two.ranks[1], "p1.1")]
    two.saved(0)  # too late: it receives the request to train on again
    assert ("go on", two.ranks[0], "p1.1") in two.take()
    assert len(two.answers) == 1


def test_of_several_reasons_the_direct_one_is_reported(two):
    two.ask()
    two.saved(0, problem="could not go on: another rank has failed")  # its words do not matter
    assert two.answers == []
    two.saved(1, problem="the disk is full", own=True)
    two.wait(0.3)
    assert two.problem == "rank 1: the disk is full"


def test_a_rank_that_says_one_thing_and_then_the_other(two):
    two.ask()
    two.saved(0)
    two.saved(0, problem="on second thoughts")
    two.saved(0)
    two.saved(1)
    two.wait(0.3)
    assert two.problem == "rank 0: on second thoughts"


def test_who_cannot_save(desk):
    desk.ask("p1.1")
    assert desk.problem == "no process of job 7 trains on this node"
    desk.answers.clear()

    desk.connect(0)
    desk.connect(1, checkpoint=False)
    desk.take()
    desk.ask("p1.2")
    assert desk.problem == "rank 1 has no checkpoint"
    assert ("go on", desk.ranks[0], "p1.2") in desk.take()
    desk.answers.clear()

    desk.say(desk.ranks[1], "checkpoint", rank=1, open=False)
    desk.ask("p1.3")
    assert desk.problem == "rank 1 has no checkpoint"


def test_another_run_of_the_job_is_not_meant(two):
    two.ask("p1.1", restart=1)
    assert two.problem == "no process of job 7 trains on this node"
    assert two.take() == []
    two.saves.go_on("p1.2", JOB, 1)
    assert two.take() == []


def test_processes_that_do_not_train_together(desk):
    for pid in (0, 1):
        desk.connect(pid)
        desk.say(desk.ranks[pid], "checkpoint", rank=0, world_size=1)
    desk.ask()
    for pid in (0, 1):
        desk.say(desk.ranks[pid], "checkpoint", rank=0, world_size=1, saving=True)
        desk.say(desk.ranks[pid], "saved")
    assert desk.problem == "processes here do not train together: ranks 0, 0 of 1"


def test_ranks_that_saved_at_different_steps(two):
    two.ask()
    two.saved(0, 40)
    two.saved(1, 41)
    assert two.problem == "ranks here saved at different steps: 40 and 41"


@pytest.mark.parametrize("other", [{"save_id": "p9.9"}, {"step": -1}])
def test_answers_without_a_request_are_ignored(two, other):
    two.saved(0, **other)
    assert (two.saves.ignored, two.answers) == (1, [])


def test_a_job_answers_for_itself_alone(two):
    two.connect(5, world=6, job=8)
    two.ask()
    two.saved(0)
    two.say(two.ranks[5], "saved", id="p1.1")
    assert (two.saves.ignored, two.answers) == (1, [])
    two.saved(1)
    assert two.answers == [DONE]
    two.ask("p1.1", job=8)
    assert two.answers[1].problem == "this id belongs to a save of job 7, run 0"


def test_called_off_the_ranks_train_on(two):
    two.ask()
    two.take()
    two.saves.go_on("p1.1", JOB, 0)
    assert two.take() == [("go on", two.ranks[0], "p1.1"), ("go on", two.ranks[1], "p1.1")]
    assert two.problem == "it was called off"
    two.saves.go_on("p1.1", JOB, 0)
    assert len(two.take()) == 2
    two.ask()
    assert [answer.problem for answer in two.answers] == ["it was called off"] * 2
    assert two.take() == []


def test_called_off_before_it_is_asked_it_is_not_done(two):
    two.saves.go_on("p1.1", JOB, 0)
    two.take()
    two.ask()
    assert two.problem == "it was called off"
    assert two.take() == []


def test_called_off_while_a_rank_was_not_connected_it_hears_of_it_when_it_is(two):
    two.ask()
    two.saved(0)
    two.saved(1)
    two.leave(1)
    two.saves.go_on("p1.1", JOB, 0)
    two.take()
    two.connect(1, saving=True)
    assert two.take() == [("go on", two.ranks[1], "p1.1")]
    two.connect(1)
    assert two.take() == []


def test_another_id_takes_the_place_of_the_first(two):
    two.ask("p1.1")
    two.take()
    two.ask("p1.2")
    assert two.problem == "p1.2 was requested instead"
    assert two.take() == [("save", two.ranks[0], "p1.2"), ("save", two.ranks[1], "p1.2")]
    two.saved(0, save_id="p1.2")
    two.saved(1, save_id="p1.2")
    assert two.answers[1] == SaveAnswer("p1.2", "", (0, 1), 2, 40)


def test_an_agent_that_was_just_started_waits_for_its_ranks(desk):
    desk.start_agent()
    desk.ask()
    assert desk.answers == []
    desk.connect(0, world=3, saving=True)
    desk.connect(1, world=3, saving=True)
    desk.wait(0.1)
    desk.saved(0, world=3)
    desk.saved(1, world=3)
    assert desk.answers == []  # the third may be on this node too
    desk.wait(3.0)
    assert desk.answers == [SaveAnswer("p1.1", "", (0, 1), 3, 40)]


def test_an_agent_that_was_just_started_does_not_wait_where_all_are_here(desk):
    desk.start_agent()
    desk.connect(0, saving=True)
    desk.connect(1, saving=True)
    desk.ask()
    desk.saved(0)
    desk.saved(1)
    assert desk.answers == [DONE]


def test_only_the_newest_are_remembered(two):
    for number in range(300):
        two.ask(f"p{number}.1")
        two.saves.go_on(f"p{number}.1", JOB, 0)
    assert len(two.saves._over) == len(two.saves._called_off) == 256


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "go on", "saved", "failed", "trains", "leave", "connect", "wait"]),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=30,
)


@given(OPERATIONS)
def test_whatever_happens_every_order_is_answered_in_its_time(operations):
    desk = Desk()
    for rank in range(3):
        desk.connect(rank, world=3)
    asked = 0
    for kind, rank, number in operations:
        save_id = f"p1.{number}"
        match kind:
            case "ask":
                under_way = save_id in desk.saves._open
                desk.ask(save_id, within_s=5.0)
                asked += not under_way
            case "go on":
                desk.saves.go_on(save_id, JOB, 0)
            case "saved":
                desk.saved(rank, save_id=save_id, world=3)
            case "failed":
                desk.saved(rank, save_id=save_id, problem="could not write", world=3)
            case "trains":
                desk.say(desk.ranks[rank], "checkpoint", rank=rank, world_size=3)
            case "leave":
                desk.leave(rank)
            case "connect":
                desk.connect(rank, world=3)
            case "wait":
                desk.wait(0.4)
        for answer in desk.answers:
            assert bool(answer.problem) != bool(answer.ranks)
    desk.wait(5.2)
    assert not desk.saves.open
    assert len(desk.answers) == asked


def test_a_save_that_the_agent_cannot_follow_any_more_ends_with_its_time_and_no_other_with_it(two, monkeypatch):
    """An error of the agent's own, at the data of one job: the save stayed open, without an answer, until the agent ended."""
    two.ask()
    two.connect(0, world=1, job=8)
    two.ask("p2.1", job=8)
    real = two.jobs.training_processes

    def fails(job_id, restart):
        if job_id == JOB:
            raise RuntimeError("a bug")
        return real(job_id, restart)

    monkeypatch.setattr(two.jobs, "training_processes", fails)
    two.wait(59.0)
    assert two.answers == []
    two.saved(0, save_id="p2.1", world=1)
    two.wait(2.0)
    assert {answer.id: answer.reason for answer in two.answers} == {
        "p2.1": Reason.UNSPECIFIED, "p1.1": Reason.LATE,
    }  # fmt: skip
    assert not two.saves.open
