"""Both ends of the job socket, for tests: a listener that remembers events, and a job that sends frames."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack

from nodeagent.errors import IdentityError
from nodeagent.identity.peer import JobProcess, Peer
from nodeagent.wire.frames import Frame
from tests.unit.nodeagent.wire.packets import packet


class Remembered:
    """A Listener that keeps all events."""

    def __init__(self) -> None:
        self.opened_by: dict[int, JobProcess] = {}
        self.frames: dict[int, list[Frame]] = {}
        self.gone: list[int] = []

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        self.opened_by[connection] = process
        self.frames[connection] = []

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        self.frames[connection].append(frame)

    def closed(self, connection: int, now_ns: int) -> None:
        self.gone.append(connection)


class InJob:
    """Identifies every process as one of the same job, or of none."""

    def __init__(self, job_id: int | None = 7) -> None:
        self.job_id = job_id

    def identify(self, peer: Peer, pidfd: int) -> JobProcess:
        assert pidfd >= 0
        if self.job_id is None:
            raise IdentityError("in no job")
        return JobProcess(peer.pid, peer.uid, 1, self.job_id, "0", "cgroup")


_open: set[socket.socket] = set()


def close_all() -> None:
    """Close the ends of jobs that a test has left open."""
    while _open:
        _open.pop().close()


class Job:
    """A process of a job, at its end of the socket. `wait_s`: time to wait for a place in the kernel's queue."""

    def __init__(self, path: Path, *, wait_s: float = 0.0) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _open.add(self.sock)
        self.sock.setblocking(wait_s > 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, int(wait_s * 1e6)))
        self.sock.connect(str(path))
        self.sock.setblocking(False)
        self.seq = 0

    def say(self, kind: str, **changes: Any) -> None:
        self.sock.send(packet(kind, self.seq, **changes))
        self.seq += 1

    async def hear(self) -> dict[str, Any] | None:
        """Return the agent's next frame; None = it has closed the connection."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self.sock, 70_000)
        except ConnectionResetError:
            return None
        return msgpack.unpackb(data) if data else None

    def close(self) -> None:
        self.sock.close()


async def until(condition: Any, turns: int = 30_000) -> Any:
    """Run the event loop until the condition is true, and return its value."""
    for _ in range(turns):
        if found := condition():
            return found
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


def heard(server):
    """Return the listener of a server that the fixture `serve` has opened."""
    return server._listener
