"""Thousands of mutated frames, from a fixed seed, against the decoder and all that stands behind it in the agent."""

from __future__ import annotations

import random
from collections.abc import Callable
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
from nodeagent.wire.frames import Frame, parse
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
    """Carries frames to no job."""

    def request_save(self, connection: int, save_id: str, still_s: float) -> bool:
        return True

    def request_go_on(self, connection: int, save_id: str) -> bool:
        return True

    def read_now(self) -> None:
        """Nothing comes."""


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


def test_mutated_frames_are_frames_or_frame_errors_and_fill_nothing() -> None:
    dice, now_ns = random.Random(20261123), 1000 * S
    jobs, outbox = JobRegistry(), Outbox()
    save_service = SaveService(jobs, Nobody(), lambda: now_ns)
    heard = Listeners(jobs, save_service.saves)
    jobs.on_change = save_service.job_changed
    reporter = ControllerReporter(
        StreamSettings("127.0.0.1:1"),
        "n1",
        "1",
        lambda: None,
        None,
        None,
        outbox,  # type: ignore[arg-type, return-value]
    )
    taken, refused, number, open_now = 0, 0, 0, dict[int, int]()
    for turn in range(6000):
        now_ns += S // 10
        if not open_now or (len(open_now) < 20 and dice.random() < 0.1):
            number += 1
            open_now[number] = dice.randint(1, 5)
            heard.opened(number, JobProcess(100 + number, 1000, 1, open_now[number], "0", "cgroup"), now_ns)
            say(heard.received, number, msgpack.packb(fields("hello", rank=number % 4)), now_ns)
        connection = dice.choice(sorted(open_now))
        try:
            frame = parse(mutated(dice, now_ns))
        except FrameError:
            refused += 1
            if dice.random() < 0.1:
                heard.closed(connection, now_ns)
                del open_now[connection]
            continue
        taken += 1
        heard.received(connection, frame, now_ns)
        if turn % 50 == 0:
            save = SaveRequest(f"p{turn}.1", dice.randint(1, 5), 0, 5.0, 60.0)
            save_service.request_save(save)
            save_service.saves.tick(now_ns)
            reporter.report(report_of(*jobs.snapshot(now_ns), monotonic_ns=now_ns))
            outbox.acknowledge(outbox.last)
    # then many of both were tried, nothing that was taken could not be sent, and nothing has been kept
    assert taken > 1500
    assert refused > 1500
    assert reporter._rows.dropped == jobs._guard.dropped == save_service.saves._guard.dropped == 0
    assert len(jobs.snapshot(now_ns)) <= 5
    for connection in open_now:
        heard.closed(connection, now_ns)
    assert jobs.snapshot(now_ns + 1000 * S) == ()
    assert (jobs._runs, jobs._of, jobs._waiting) == ({}, {}, {})


def say(received: Callable[[int, Frame, int], None], connection: int, packet: bytes, now_ns: int) -> None:
    received(connection, parse(packet), now_ns)
