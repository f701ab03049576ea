"""Thousands of mutated frames from a fixed seed, against the decoder and all parts of the agent behind it."""

from __future__ import annotations

import random
from typing import Any

import msgpack

from nodeagent.errors import FrameError
from nodeagent.identity.peer import JobProcess
from nodeagent.jobsocket.listener import Listeners
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.saves.coordinator import SaveRequest
from nodeagent.saves.service import SaveService
from nodeagent.uplink.controller_reporter import ControllerReporter
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import StreamSettings
from nodeagent.wire.frames import parse
from tests.unit.nodeagent.uplink.test_encode import node as report_of
from tests.unit.nodeagent.wire.packets import fields

KINDS = ("hello", "model", "steps", "profile", "checkpoint", "saved", "bye")
NUMBERS = (0, -1, 1, 2, 2**17, 2**17 + 1, 2**31 - 1, 2**40, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
ODD: tuple[Any, ...] = (
    *NUMBERS, 0.0, -0.5, 5e-324, 1e-9, 1e9, 1e308, float("nan"), float("inf"), True, None, "", "x" * 256, "\x00\x1b[31m", b"x",
    [], [1] * 70, {}, {"all_reduce": {"count": 1e308, "bytes": 1e308, "seconds": 1e308}}, [{"name": "g"}],
)  # fmt: skip
S = 1_000_000_000


class Nobody:
    """Sends requests to no process."""

    def request_save(self, connection: int, save_id: str, still_s: float, why: str) -> bool:
        return True

    def request_go_on(self, connection: int, save_id: str) -> bool:
        return True

    def read_now(self) -> None:
        """Do nothing: no frame arrives."""


def mutated(dice: random.Random, now_ns: int) -> bytes:
    kind = dice.choice(KINDS)
    values = fields(kind, dice.randrange(5))
    if kind == "steps":
        values |= {"first_ns": now_ns - S, "last_ns": now_ns, "steps": dice.choice((1, 10, 2**40))}
    for _ in range(dice.randint(0, 2)):
        key = dice.choice(sorted(values))
        match dice.randrange(3):
            case 0:
                del values[key]
            case _:
                values[key] = dice.choice(ODD)
        if not values:
            break
    packet: bytearray = bytearray(msgpack.packb(values))
    if dice.random() < 0.3:
        for _ in range(dice.randint(1, 3)):
            packet[dice.randrange(len(packet))] = dice.randrange(256)
    return bytes(packet)


class Clock:
    """A clock that stands still unless moved, in nanoseconds."""

    now_ns = 1000 * S

    def __call__(self) -> int:
        return self.now_ns


class Traffic:
    """Up to twenty connections of five jobs, which send mutated frames to everything behind the decoder."""

    def __init__(self, dice: random.Random, heard: Listeners, clock: Clock) -> None:
        self.dice, self.heard, self.clock = dice, heard, clock
        self.taken = self.refused = self._number = 0
        self.open_now: dict[int, int] = {}

    def turn(self) -> None:
        """Send one mutated frame, perhaps on a new connection."""
        self.clock.now_ns += S // 10
        if not self.open_now or (len(self.open_now) < 20 and self.dice.random() < 0.1):
            self._connect()
        connection = self.dice.choice(sorted(self.open_now))
        try:
            frame = parse(mutated(self.dice, self.clock()))
        except FrameError:
            self.refused += 1
            if self.dice.random() < 0.1:
                self.heard.closed(connection, self.clock())
                del self.open_now[connection]
            return
        self.taken += 1
        self.heard.received(connection, frame, self.clock())

    def close(self) -> None:
        """Close all connections."""
        for connection in self.open_now:
            self.heard.closed(connection, self.clock())

    def _connect(self) -> None:
        self._number += 1
        job_id = self.open_now[self._number] = self.dice.randint(1, 5)
        process = JobProcess(100 + self._number, 1000, 1, job_id, "0", "cgroup")
        self.heard.opened(self._number, process, self.clock())
        hello = parse(msgpack.packb(fields("hello", rank=self._number % 4)))
        self.heard.received(self._number, hello, self.clock())


def test_mutated_frames_are_frames_or_frame_errors_and_fill_nothing() -> None:
    # Given an agent without sockets
    dice, clock, jobs, outbox = random.Random(20261123), Clock(), JobRegistry(), Outbox()
    save_service = SaveService(jobs, Nobody(), clock)
    jobs.subscribe(save_service.job_changed)
    reporter = ControllerReporter(
        StreamSettings(("127.0.0.1:1",)),
        "n1",
        "1",
        lambda: None,
        None,
        None,
        outbox,  # type: ignore[arg-type, return-value]
    )
    traffic = Traffic(dice, Listeners(jobs, save_service.saves), clock)
    # When thousands of mutated frames arrive, with saves and reports between
    for turn in range(6000):
        taken = traffic.taken
        traffic.turn()
        if turn % 50 == 0 and traffic.taken > taken:
            save_service.request_save(SaveRequest(f"p{turn}.1", dice.randint(1, 5), 0, 5.0, 60.0))
            save_service.saves.tick(clock.now_ns)
            reporter.report(report_of(*jobs.rows(clock.now_ns), monotonic_ns=clock.now_ns))
            outbox.acknowledge(outbox.last)
    # Then many were accepted and many refused, every accepted one could be reported, and nothing is kept
    assert traffic.taken > 1500
    assert traffic.refused > 1500
    assert reporter._rows.dropped == jobs._guard.dropped == save_service.saves._guard.dropped == 0
    assert len(jobs.rows(clock.now_ns)) <= 5
    traffic.close()
    assert jobs.rows(clock.now_ns + 1000 * S) == ()
    assert (jobs._runs, jobs._of, jobs._waiting) == ({}, {}, {})
