"""Agents of ten thousand nodes have a place each, and there is no place for more than the setting allows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import grpc
import pydantic
import pytest

from controller.agents.entry.admission import RefusedError
from controller.agents.node_table import NodeTable
from controller.base.config import ControllerSettings
from controller.profiles.sightings import Arrival
from protos.headway.v1 import agent_pb2

MOST = 10_000


@dataclass
class Stream:
    """The part of an open stream that the table reads."""

    node: str
    called_s: float = 1.0
    offset_s: float = 0.0


def enter(table: NodeTable, name: str) -> None:
    stream: Any = Stream(name)
    table.enter(stream, agent_pb2.AgentHello(agent_version="1", boot_id="b", run_id=name))


def test_ten_thousand_agents_connect_and_the_next_one_is_refused() -> None:
    settings = ControllerSettings(partitions=("dl",), agents_most=MOST)
    table = NodeTable(settings.agents_most)
    began_s = time.process_time()
    for number in range(MOST):
        enter(table, f"n{number}")
    with pytest.raises(RefusedError) as refused:
        enter(table, "one-more")
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "10000 agents" in str(refused.value)
    assert len(table.streams()) == len(table.nodes) == MOST
    assert time.process_time() - began_s < 5.0, "no step looks at all others"


def test_a_caller_that_waits_between_two_looks_sees_one_state() -> None:
    # given a caller that goes through the nodes
    table = NodeTable(10, now=lambda: 0.0)
    enter(table, "n1")
    enter(table, "n2")
    nodes = table.nodes
    looks = iter(nodes.items())
    _, first = next(looks)
    assert table.nodes is nodes, "no copy without a change"
    # when agents come, report, leave and are forgotten meanwhile
    enter(table, "n3")
    report = agent_pb2.AgentReport(number=1, dropped=7, telemetry=agent_pb2.NodeTelemetry())
    table.note_report(Arrival("n1", "n1", report, 1.0))
    gone = table.stream_of("n2")
    assert gone is not None
    table.leave(gone)
    table.forget(now_s=2 * 86400.0)
    # then it still sees what it began with, and a later caller what has happened
    assert [name for name, _ in looks] == ["n2"]
    assert (first.reports, first.dropped, nodes["n2"].connected) == (0, 0, True)
    assert (table.nodes["n1"].reports, table.nodes["n1"].dropped) == (1, 7)
    assert table.nodes.keys() == {"n1", "n3"}
    with pytest.raises(TypeError):
        table.nodes["n1"] = first  # type: ignore[index]


def test_more_than_ten_thousand_are_not_accepted_as_a_setting() -> None:
    with pytest.raises(pydantic.ValidationError, match="agents_most"):
        ControllerSettings(partitions=("dl",), agents_most=MOST + 1)
