"""Servers on real sockets survive mutated frames, and still serve."""

from __future__ import annotations

import pytest

from tests.fuzz.servers import SERVERS, run_server


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_survives_mutated_frames(name: str) -> None:
    tally = run_server(name, 60, 20261123)
    assert [fault.detail for fault in tally.faults.values()] == []
