"""The job socket: real sockets, with honest and hostile jobs."""

import os
import socket

import pytest

from nodeagent.wire.frames import Bye, Hello, Steps
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, heard, until
from tests.unit.nodeagent.wire.packets import packet


async def test_a_job_is_welcomed_heard_and_missed(serve):
    server = serve(steps_interval_s=2.0, profile_steps=30)
    job = Job(server.path)
    assert await job.hear() == {"v": 1, "type": "welcome", "seq": 0, "interval_s": 2.0, "profile_steps": 30}
    job.say("hello")
    job.say("steps", steps=10)
    job.say("bye")
    job.close()
    await until(lambda: heard(server).gone)
    [(connection, process)] = heard(server).opened_by.items()
    assert (process.pid, process.uid) == (os.getpid(), os.getuid())
    assert [type(frame) for frame in heard(server).frames[connection]] == [Hello, Steps, Bye]
    assert server.counters().connections == 0
    assert server.counters().frames == 3


async def test_the_last_frames_of_a_process_that_left_some_of_ours_unread_are_heard(serve):
    """A killed process reads nothing any more. The kernel then reports a reset before what the process had sent."""
    server = serve()
    job = Job(server.path)
    await until(lambda: heard(server).opened_by)  # and the welcome is there, unread
    job.say("hello")
    job.say("steps", steps=10)
    job.say("bye")
    job.close()
    await until(lambda: heard(server).gone)
    [frames] = heard(server).frames.values()
    assert [type(frame) for frame in frames] == [Hello, Steps, Bye]


async def test_a_profile_can_be_asked_for(serve):
    server = serve()
    job = Job(server.path)
    await job.hear()
    connection = await until(lambda: next(iter(heard(server).opened_by), None))
    assert server.request_profile(connection, 12)
    assert await job.hear() == {"v": 1, "type": "profile", "seq": 1, "steps": 12}
    job.close()
    await until(lambda: heard(server).gone)
    assert not server.request_profile(connection, 12)


async def test_who_is_in_no_job_is_refused(serve):
    server = serve(InJob(None))
    job = Job(server.path)
    assert await job.hear() is None
    assert server.counters().refused == 1
    assert not heard(server).opened_by


@pytest.mark.parametrize(
    "bad",
    [
        b"rubbish",
        packet("bye", x="x" * 65_600),
        packet("steps"),  # before any hello
        packet("hello", rank="0"),
    ],
    ids=["rubbish", "65,537 bytes and more", "no hello", "wrong type"],
)
async def test_no_frame_costs_that_connection_and_nothing_else(serve, bad):
    server = serve()
    good, hostile = Job(server.path), Job(server.path)
    await good.hear()
    await hostile.hear()
    good.say("hello")
    hostile.sock.send(bad)
    assert await hostile.hear() is None
    good.say("steps")
    frames = heard(server).frames
    await until(lambda: sorted(len(each) for each in frames.values()) == [0, 2])
    assert server.counters().closed_for_cause == 1
    assert server.counters().connections == 1


async def test_an_empty_packet_ends_the_connection(serve):
    server = serve()
    job = Job(server.path)
    await job.hear()
    job.sock.send(b"")
    assert await job.hear() is None


async def test_numbers_must_rise_and_may_leave_gaps(serve):
    server = serve()
    job = Job(server.path)
    await job.hear()
    job.say("hello")
    job.seq = 7
    job.say("steps")
    await until(lambda: server.counters().frames == 2)
    job.seq = 7
    job.say("steps")
    assert await job.hear() is None


async def test_frames_of_unknown_type_are_counted(serve):
    server = serve()
    job = Job(server.path)
    await job.hear()
    job.say("weather")
    job.say("hello")
    await until(lambda: server.counters().frames == 2)
    assert server.counters().unknown_frames == 1
    assert len(next(iter(heard(server).frames.values()))) == 1


async def test_a_job_that_never_reads_loses_requests_and_costs_no_time(serve):
    server = serve()
    deaf, good = Job(server.path), Job(server.path)
    deaf.say("hello")
    connection = await until(lambda: next(iter(heard(server).opened_by), None))
    while server.request_profile(connection, 5):
        pass
    assert server.counters().dropped_sends == 1
    good.say("hello")
    assert await good.hear() is not None


async def test_who_says_nothing_for_half_a_minute_is_closed(serve):
    clock = [0]
    server = serve(clock_ns=lambda: clock[0])
    silent, good = Job(server.path), Job(server.path)
    await silent.hear()
    await good.hear()
    good.say("hello")
    await until(lambda: server.counters().frames == 1)
    clock[0] = 31_000_000_000
    server.sweep()
    assert await silent.hear() is None
    assert server.counters().connections == 1


async def test_frames_are_gathered(serve):
    """The first frame is read at once; those that arrive shortly after it are read together, and none is lost."""
    server = serve(gather_s=0.2)
    jobs = [Job(server.path) for _ in range(3)]
    for job in jobs:
        await job.hear()
        job.say("hello")
    await until(lambda: server.counters().frames)
    seen = []
    for job in jobs:
        for steps in range(1, 6):
            job.say("steps", steps=steps)
    await until(lambda: seen.append(server.counters().frames) or seen[-1] == 18)
    assert len(set(seen)) <= 3
    assert [[type(frame) for frame in frames] for frames in heard(server).frames.values()] == [
        [Hello] + [Steps] * 5
    ] * 3


def test_a_socket_pair_is_what_seqpacket_means():
    """The protocol requires that the kernel keeps packets apart."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        left.send(b"one")
        left.send(b"two")
        assert (right.recv(100), right.recv(100)) == (b"one", b"two")


async def test_an_error_of_the_agent_s_own_costs_one_connection_and_the_others_are_heard(serve, monkeypatch):
    server = serve()
    clumsy, other = Job(server.path), Job(server.path)
    await until(lambda: len(heard(server).opened_by) == 2)
    first, second = heard(server).opened_by
    received = heard(server).received

    def stumble(connection, frame, now_ns):
        if connection == first:
            raise OverflowError("an unforeseen number")
        received(connection, frame, now_ns)

    monkeypatch.setattr(heard(server), "received", stumble)
    for _ in range(3):
        clumsy.say("hello") if server.counters().closed_for_cause == 0 else None
        await until(lambda: server.counters().closed_for_cause == 1)
        other.say("hello")
    await until(lambda: len(heard(server).frames[second]) == 3)
    assert server.counters().connections == 1
    assert heard(server).gone == [first]


async def test_jobs_cannot_make_the_list_of_reasons_grow(serve):
    server = serve()
    for world_size in range(2, 60):
        job = Job(server.path)
        await job.hear()
        job.say("hello")
        job.say("checkpoint", world_size=world_size, rank=world_size)
        await until(lambda: server.counters().connections == 0)
    assert server.counters().closed_for_cause == 58
    assert len(server._counters.reasons) <= 33
