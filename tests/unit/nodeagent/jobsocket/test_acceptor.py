"""The acceptor under load: processes that connect without end, and no file left."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

from nodeagent.identity.peer import peer_of
from nodeagent.jobsocket import server as job_socket
from nodeagent.jobsocket.rate_limit import Limits
from policies.serving.runtime.tasks.token_bucket import TokenBucket
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, heard, until
from tests.unit.nodeagent.wire.packets import packet


async def test_who_knocks_for_ever_is_answered_so_often(serve):
    """While the clock stands still, the burst is refused at once, then one connection at a time with pauses between."""
    rests = []
    server = serve(InJob(None), clock_ns=lambda: 0)
    server._acceptor._refusals = TokenBucket(1.0, 5, 0.0)
    pause = server._acceptor._pause
    server._acceptor._pause = lambda seconds: rests.append(server.counters().refused) or pause(seconds)
    jobs = [Job(server.path) for _ in range(9)]
    assert [await job.hear() for job in jobs] == [None] * 9
    assert rests == [6, 7, 8, 9]  # one in each turn


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


async def test_a_flood_starves_no_other_connection(serve, tmp_path, monkeypatch):
    """While processes of one user connect and send expensive nonsense as fast as they can, another user's job is served."""
    monkeypatch.setattr(job_socket, "peer_of", lambda sock: as_another(peer_of(sock)))
    server = serve(gather_s=0.05)
    hostile = [hostile_process(server, tmp_path, packet("bye", x=[{}] * 65_000))]
    try:
        await until(lambda: server.counters().closed_for_cause > 10)
        hostile.append(hostile_process(server, tmp_path, b""))  # it soon uses all attempts of the user
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
    """Return the peer as a process of another user."""
    return replace(peer, uid=4242) if peer.pid == os.getpid() else peer


def hostile_process(server, tmp_path, packet):
    """Start a process that connects for ever, and sends that packet each time."""
    path = tmp_path / f"packet-{len(packet)}"
    path.write_text(packet.hex())
    with path.open() as given:
        return subprocess.Popen([sys.executable, "-c", HOSTILE, str(server.path)], stdin=given)


def connect_somehow(server):
    """Connect as jobs do: wait a moment, and try again after a refusal."""
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


async def test_a_queue_that_one_user_has_filled_delays_others_by_no_pause(serve):
    """While the clock stands still, as many connections are refused without a pause as the kernel's queue holds."""
    server = serve(clock_ns=lambda: 0)
    waiting = fill_queue(server.path)
    assert waiting >= 100
    left, pauses = iter(range(waiting)), []
    admit, pause = server._acceptor._admit, server._acceptor._pause
    server._acceptor._admit = lambda sock: admit(sock) if next(left, None) is None else "too many attempts"
    server._acceptor._pause = lambda seconds: pauses.append(seconds) or pause(seconds)
    good = await asyncio.to_thread(connect_somehow, server)
    assert good is not None
    assert server.counters().refused == waiting
    assert pauses == []


def fill_queue(path):
    """Connect until the kernel's queue is full. A connection stays in it when its other end is closed."""
    for number in range(100_000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.setblocking(False)
            try:
                sock.connect(str(path))
            except BlockingIOError:
                return number
    raise AssertionError("the queue has no end")


async def test_the_log_of_refusals_names_the_user(serve):
    server = serve(limits=Limits(connections_per_user=1))
    first, second = Job(server.path), Job(server.path)
    assert await first.hear() is not None
    assert await second.hear() is None
    assert list(server._counters.reasons) == [f"too many connections of this user (uid {os.getuid()})"]


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
