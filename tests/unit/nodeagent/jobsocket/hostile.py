"""Jobs that mean harm, as processes that go on until they are killed: arguments are the behaviour, the socket and a uid."""

from __future__ import annotations

import itertools
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from tests.unit.nodeagent.wire.packets import packet

VICTIM = 7
"""Job of another user, which hostile jobs name as theirs."""


@contextmanager
def connected(path: str) -> Iterator[socket.socket]:
    """Give a connection that has been welcomed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(1.0)
        sock.connect(path)
        sock.recv(70_000)
        yield sock


def crowds(path: str) -> None:
    """Open as many connections as there may be, keep them, and try for more."""
    held: list[socket.socket] = []
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        with suppress(OSError):
            sock.connect(path)
            held.append(sock)
        if len(held) > 4000:
            for each in held[:2000]:
                each.close()
            del held[:2000]


def sends_bytes(path: str) -> None:
    """Send frames byte by byte."""
    with connected(path) as sock:
        for frame in (packet("hello", 0), packet("steps", 1)):
            for byte in frame:
                sock.send(bytes([byte]))


def never_reads(path: str) -> None:
    """Report as it should, ask for a report at the end, and never read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.connect(path)
        sock.send(packet("hello", 0, report=True))
        for seq in itertools.count(1):
            sock.send(packet("checkpoint", seq, rank=0, saved=seq))
            time.sleep(0.03)


def claims(path: str) -> None:
    """Claim other ranks, other jobs and later runs, and have news all the time."""
    chance = random.Random()
    with connected(path) as sock:
        for seq in itertools.count():
            rank, world = chance.randrange(2**17), chance.randrange(1, 2**17 + 1)
            more = {"rank": rank % world, "world_size": world}
            if seq % 3 == 0:
                sock.send(
                    packet(
                        "hello",
                        seq,
                        **more,
                        restart=chance.choice((0, 1, 10**6)),
                        job_id=chance.choice((VICTIM, 2**32, -1)),
                    )
                )
            else:
                sock.send(packet("checkpoint", seq, **more, saved=chance.randrange(2**40), saving=seq % 2 == 0))
            time.sleep(0.02)


def boasts(path: str) -> None:
    """Report the largest numbers, and larger ones."""
    chance = random.Random()
    numbers = (
        2**40,
        2**40 + 1,
        2**53,
        2**63 - 1,
        2**63,
        2**64 - 1,
        -1,
        -(2**63),
        1e308,
        float("inf"),
        float("nan"),
        0.5,
        True,
        None,
    )
    with connected(path) as sock:
        sock.send(packet("hello", 0))
        now_ns = time.monotonic_ns()
        for seq in itertools.count(1):
            kind, fields = chance.choice(
                (
                    ("steps", ("steps", "first_ns", "last_ns", "window_steps", "window_s")),
                    ("profile", ("steps", "step_s", "compute_s", "comm_exposed_s", "comm_hidden_s")),
                    ("model", ("param_bytes", "num_tensors", "num_params", "batch_size")),
                    ("checkpoint", ("rank", "world_size", "start", "saved")),
                    ("saved", ("step",)),
                )
            )
            usual = {"first_ns": now_ns - 10**9, "last_ns": time.monotonic_ns()} if kind == "steps" else {}
            sock.send(packet(kind, seq, **{**usual, chance.choice(fields): chance.choice(numbers)}))
            time.sleep(0.005)


def texts(path: str) -> None:
    """Send models with the longest texts, other ones all the time."""
    with connected(path) as sock:
        sock.send(packet("hello", 0, script="s" * 255, torch="t" * 255, device="cuda"))
        for seq in itertools.count(1):
            groups = [
                {"name": f"{seq}-{number}".ljust(255, "g"), "size": 2, "backend": "b" * 255} for number in range(64)
            ]
            sock.send(packet("model", seq, groups=groups, signature=f"{seq:064x}"))
            time.sleep(0.02)


def gangs(path: str) -> None:
    """Be a job of as many ranks as may connect, all of which have news and other models, and come and go."""
    held: list[tuple[socket.socket, Iterator[int]]] = []
    with ExitStack() as stack:
        for rank in itertools.count():
            with suppress(OSError):
                held.append((stack.enter_context(connected(path)), itertools.count()))
                held[-1][0].send(packet("hello", next(held[-1][1]), rank=rank, world_size=2**17))
            for sock, numbers in held[-240:]:
                now_ns, seq = time.monotonic_ns(), next(numbers)
                frames = (
                    packet("steps", seq, steps=seq, first_ns=now_ns - 10**9, last_ns=now_ns),
                    packet("model", seq, signature=f"{rank * 1000 + seq:064x}"),
                    packet("checkpoint", seq, rank=rank % 2**17, world_size=2**17, saved=seq),
                )
                with suppress(OSError):
                    sock.send(frames[seq % 3])
                time.sleep(0.001)
            if len(held) > 250:
                held.pop(0)[0].close()


def half_closes(path: str) -> None:
    """Close one direction, and go on in the other."""
    for how in (socket.SHUT_RD, socket.SHUT_WR):
        with connected(path) as sock:
            sock.send(packet("hello", 0))
            sock.shutdown(how)
            for seq in range(1, 30):
                sock.send(packet("steps", seq))
                time.sleep(0.02)


def vanishes(path: str) -> None:
    """Leave connections to children that end, and reset others."""
    with connected(path) as sock:
        sock.send(packet("hello", 0))
        child = os.fork()
        if not child:
            time.sleep(0.05)
            os._exit(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    os.waitpid(child, 0)


def oversized(path: str) -> None:
    """Send packets of every size, up to what the kernel takes."""
    for size in (0, 1, 65_535, 65_536, 65_537, 150_000):
        with connected(path) as sock:
            sock.send(packet("hello", 0))
            sock.send(b"\x81" * size)
            sock.recv(10)


def deep(path: str) -> None:
    """Send maps in maps, and maps that say that they are huge."""
    for bomb in (
        b"\x81\xa1a" * 20_000,
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x93" * 60_000,
    ):
        with connected(path) as sock:
            sock.send(packet("hello", 0))
            sock.send(bomb)
            sock.recv(10)


BEHAVIOURS: dict[str, Callable[[str], None]] = {
    each.__name__: each
    for each in (
        crowds,
        sends_bytes,
        never_reads,
        claims,
        boasts,
        texts,
        gangs,
        half_closes,
        vanishes,
        oversized,
        deep,
    )
}


def main(behaviour: str, path: str, uid: str) -> None:
    """Behave so for ever."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    while True:
        with suppress(OSError):
            BEHAVIOURS[behaviour](path)
        time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
