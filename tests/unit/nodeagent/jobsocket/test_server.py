"""The job socket: real sockets, honest jobs beside hostile ones."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from nodeagent.errors import SocketError
from nodeagent.identity.peer import peer_of
from nodeagent.jobsocket import server as job_socket
from nodeagent.jobsocket.rate_limit import Limits
from nodeagent.jobsocket.server import JobSocket
from nodeagent.wire.frames import Bye, Hello, Steps
from policies.serving.runtime.token_bucket import TokenBucket
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, Remembered, close_all, until
from tests.unit.nodeagent.wire.packets import packet


@pytest.fixture
async def serve(tmp_path):
    """serve(...) opens a server with these options; its jobs connect to `server.path`."""
    opened = []

    def open_one(identify=None, limits=None, path=None, **options):
        server = JobSocket(
            path or tmp_path / "run" / "job.sock",
            identify or InJob(),
            Remembered(),
            limits or Limits(),
            **{"gather_s": 0.0} | options,
        )
        server.open()
        opened.append(server)
        return server

    yield open_one
    close_all()
    for server in opened:
        server.close()


def heard(server):
    return server._listener


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


async def test_the_modes_of_socket_and_folder(serve):
    server = serve()
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o755


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


async def test_a_connection_that_sends_too_much_is_closed(serve):
    server = serve(limits=Limits(frames_per_s=0.001, frames_burst=5))
    job = Job(server.path)
    await job.hear()
    job.say("hello")
    for _ in range(5):
        job.say("steps")
    assert await job.hear() is None
    assert server.counters().frames == 5
    assert server._counters.reasons == {"too many frames": 1}


async def test_one_user_gets_so_many_connections_and_others_theirs(serve):
    identify = InJob()
    server = serve(identify, Limits(connections=5, connections_per_user=3))
    mine = [Job(server.path) for _ in range(4)]
    assert [(await job.hear()) is not None for job in mine] == [True, True, True, False]
    mine[0].close()
    await until(lambda: server.counters().connections == 2)
    again = Job(server.path)
    assert await again.hear() is not None


async def test_so_many_connections_in_all(serve):
    server = serve(limits=Limits(connections=2))
    jobs = [Job(server.path) for _ in range(3)]
    assert [(await job.hear()) is not None for job in jobs] == [True, True, False]


async def test_a_user_s_frames_are_charged_by_size(serve):
    server = serve(limits=Limits(frames_per_s=10_000, frames_burst=10_000))
    job = Job(server.path)
    await job.hear()
    job.say("hello")
    sent = 0
    while not server.counters().closed_for_cause:  # 4,000 tokens at once, 64 a frame: some sixty
        try:
            job.say("bye", x="x" * 64_000)
            sent += 1
        except BlockingIOError:
            pass
        except BrokenPipeError:
            break
        await asyncio.sleep(0)
        assert sent < 2000
    assert server._counters.reasons == {"too many frames of this user": 1}


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
    """The first is read at once; those that come in the moment after it together, and none is lost or late for ever."""
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


async def test_who_knocks_for_ever_is_answered_so_often(serve):
    """With the clock standing still: what may be refused at once is refused, then one at a time with rests between."""
    rests = []
    server = serve(InJob(None), clock_ns=lambda: 0)
    server._acceptor._refusals = TokenBucket(1.0, 5, 0.0)
    pause = server._acceptor._pause
    server._acceptor._pause = lambda seconds: rests.append(server.counters().refused) or pause(seconds)
    jobs = [Job(server.path) for _ in range(9)]
    assert [await job.hear() for job in jobs] == [None] * 9
    assert rests == [6, 7, 8, 9]  # one each time that it looks


HOSTILE = """
import socket, sys
path, packet = sys.argv[1], bytes.fromhex(sys.stdin.read())
while True:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(path)
            if packet:
                sock.send(packet)
                sock.recv(1000)
    except OSError:
        pass
"""


async def test_a_flood_starves_nobody(serve, tmp_path, monkeypatch):
    """Given a user's processes that connect, and send the costliest rubbish, as fast as they can, another's job is heard."""
    monkeypatch.setattr(job_socket, "peer_of", lambda sock: as_another(peer_of(sock)))
    server = serve(gather_s=0.05)
    hostile = [hostile_process(server, tmp_path, packet("bye", x=[{}] * 65_000))]
    try:
        await until(lambda: server.counters().closed_for_cause > 10)
        hostile.append(hostile_process(server, tmp_path, b""))  # which soon takes all attempts that the user has
        await until(lambda: server.counters().refused > 100)
        good = await asyncio.to_thread(connect_somehow, server)
        assert good is not None
        good.say("hello")
        for steps in range(10, 40, 10):
            good.say("steps", steps=steps)
            await asyncio.sleep(0.01)
        mine = await until(lambda: [number for number, frames in heard(server).frames.items() if len(frames) == 4])
        assert heard(server).opened_by[mine[0]].pid == os.getpid()
        assert [each.poll() for each in hostile] == [None, None]
    finally:
        for each in hostile:
            each.kill()
            each.wait()


def as_another(peer):
    """This process plays another user's."""
    return replace(peer, uid=4242) if peer.pid == os.getpid() else peer


def hostile_process(server, tmp_path, packet):
    """Connects for ever, and sends that packet each time."""
    path = tmp_path / f"packet-{len(packet)}"
    path.write_text(packet.hex())
    with path.open() as given:
        return subprocess.Popen([sys.executable, "-c", HOSTILE, str(server.path)], stdin=given)


def connect_somehow(server):
    """As jobs do: wait a moment at the door, and try again when turned away."""
    for _ in range(100):
        try:
            job = Job(server.path, wait_s=0.2)
            job.sock.setblocking(True)
            job.sock.settimeout(20.0)
            if job.sock.recv(1000):
                return job
            job.close()
        except OSError:
            pass
        threading.Event().wait(0.05)
    return None


# ---- the door


async def test_the_socket_of_a_dead_agent_is_replaced(serve, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    dead = subprocess.run(
        [
            sys.executable,
            "-c",
            "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(sys.argv[1])",
            folder / "job.sock",
        ],
        check=True,
    )
    assert dead.returncode == 0
    assert (folder / "job.sock").is_socket()
    server = serve()
    assert await Job(server.path).hear() is not None


async def test_a_live_agent_is_left_alone(serve):
    first = serve()
    with pytest.raises(SocketError, match="another agent listens there"):
        serve()
    assert await Job(first.path).hear() is not None
    first.close()
    assert not first.path.exists()
    assert await Job(serve().path).hear() is not None


async def test_places_where_it_cannot_be(serve, tmp_path):
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with pytest.raises(SocketError, match="other users could put their own socket"):
        serve(path=open_folder / "job.sock")
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketError, match="is not a folder"):
        serve(path=tmp_path / "file" / "job.sock")
    with pytest.raises(SocketError, match="cannot be created"):
        serve(path=tmp_path / "no" / "such" / "job.sock")
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run" / "job.sock").write_text("precious")
    with pytest.raises(SocketError, match="it is not a socket"):
        serve()
    assert (tmp_path / "run" / "job.sock").read_text() == "precious"
    (tmp_path / "run" / "job.sock.lock").unlink()
    (tmp_path / "run" / "job.sock.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SocketError, match="check owner and mode"):
        serve()
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(SocketError, match="set job_socket to a short path"):
        serve(path=tmp_path / ("x" * 120))


async def test_out_of_files_it_waits_and_goes_on(serve, monkeypatch):
    server = serve()
    monkeypatch.setattr("nodeagent.jobsocket.acceptor._OUT_OF_FILES_PAUSE_S", 0.02)
    door = server._acceptor.listening.sock

    class Exhausted:
        tries = 0

        def accept(self):
            self.tries += 1
            if self.tries < 3:
                raise OSError(24, "Too many open files")
            return door.accept()

        def fileno(self):
            return door.fileno()

        def close(self):
            door.close()

    server._acceptor.listening.sock = Exhausted()
    job = Job(server.path)
    assert await job.hear() is not None
    assert server._acceptor.listening.sock.tries >= 3


def test_a_socket_pair_is_what_seqpacket_means():
    """The kernel keeps packets apart, which the protocol rests on."""
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
            raise OverflowError("a number that nobody foresaw")
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
