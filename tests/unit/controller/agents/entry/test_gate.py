"""Connections that are not admitted yet: limited for each machine, with refusals logged once a minute."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from controller.agents.entry.admission import RefusedError
from controller.agents.entry.gate import Gate, Refusals, host_of

REFUSED = RefusedError(grpc.StatusCode.UNAUTHENTICATED, "no credential")


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:40112", "10.0.0.1"),
        ("ipv6:%5Bfe80::1%5D:40112", "[fe80::1]"),
        ("ipv6:[::1]:5", "[::1]"),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_the_machine_at_the_other_end(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_one_machine_takes_no_places_of_others() -> None:
    # Given a machine that opens calls and says nothing
    gate = Gate(most=5, most_a_host=3)
    with ExitStack() as calls:
        for port in range(3):
            calls.enter_context(gate.opening(f"ipv4:10.0.0.1:{port}"))
        with pytest.raises(RefusedError, match=r"too many calls from 10\.0\.0\.1"), gate.opening("ipv4:10.0.0.1:9"):
            pass
        # then another one's agent is let in all the same, as long as there is room at all
        calls.enter_context(gate.opening("ipv4:10.0.0.2:9"))
        calls.enter_context(gate.opening("unix:"))
        with pytest.raises(RefusedError, match="too many agents"), gate.opening("ipv4:10.0.0.3:9"):
            pass
    # and when they are through, or given up, their places are free
    for _ in range(100):
        with gate.opening("ipv4:10.0.0.1:1"):
            pass
    assert not gate._opening


def test_refusals_are_counted_all_and_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, int]] = []

    class Log:
        def info(self, _event: str, peer: str, unlogged: int, **_more: Any) -> None:
            logged.append((peer, unlogged))

    monkeypatch.setattr("controller.agents.entry.gate.log", Log())
    at_s = 0.0
    refusals = Refusals(lambda: at_s)
    for turn in range(1000):
        at_s = turn * 0.1
        refusals.note(f"ipv4:10.0.0.1:{turn}", REFUSED)
    refusals.note("ipv4:10.0.0.1:7", RefusedError(grpc.StatusCode.ABORTED, "dialled anew"))
    refusals.note("ipv4:10.0.0.2:7", REFUSED)
    assert refusals.counted == {"UNAUTHENTICATED": 1001, "ABORTED": 1}
    assert logged == [
        ("ipv4:10.0.0.1:0", 0),
        ("ipv4:10.0.0.1:600", 599),
        ("ipv4:10.0.0.1:7", 0),
        ("ipv4:10.0.0.2:7", 0),
    ]


def test_what_is_remembered_of_refusals_is_bounded() -> None:
    refusals = Refusals(lambda: 0.0)
    for host in range(3000):
        refusals.note(f"ipv4:10.0.{host // 250}.{host % 250}:1", REFUSED)
    assert len(refusals._logged) <= 1024
