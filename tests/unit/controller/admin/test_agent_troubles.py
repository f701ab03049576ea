"""Failed background tasks of agents, from the agent's report to operators and to Prometheus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller.admin.messages import agents_status
from controller.admin.metrics.agent_metrics import _task_failures
from controller.agents.node_table import NodeStatus
from controller.cli.doctor.agents import AgentsSeen, agent_findings
from policies.serving.runtime.finding import Level
from protos.headway.v1 import agent_pb2

NOW_S = 1_700_000_000.0


def node(name: str, *failed: agent_pb2.FailedTask, connected: bool = True) -> NodeStatus:
    telemetry = agent_pb2.NodeTelemetry(failed_tasks=failed)
    return NodeStatus(name, connected, NOW_S, "1", "boot", "run", 0.0, telemetry=telemetry)


def failed(task: str = "saves", failures: int = 3, ago_s: float = 60.0, problem: str = "OSError: oh") -> Any:
    return agent_pb2.FailedTask(task=task, failures=failures, in_a_row=2, last_s=NOW_S - ago_s, problem=problem)


def troubles(*nodes: NodeStatus) -> list[str]:
    agents = SimpleNamespace(reports=0, refused={}, nodes={each.node: each for each in nodes})
    measurement: Any = SimpleNamespace(agents=agents)
    return list(agents_status(measurement, [each.node for each in nodes], NOW_S).troubles)


def test_a_task_that_failed_within_the_last_hour_is_reported_with_its_node_and_time() -> None:
    (text,) = troubles(
        node("n1", failed()), node("n2", failed(ago_s=7200.0)), node("n3"), node("n4", failed(), connected=False)
    )
    assert text == "on n1, task saves failed 2 times in a row, last at 2023-11-14T22:12:20+00:00 with OSError: oh"


def test_what_an_agent_claims_is_no_command_to_a_terminal_and_no_time_without_end() -> None:
    (text,) = troubles(node("n1", failed(problem="\x1b[2J\nred")), node("n2", failed(ago_s=-1e300)))
    assert "\x1b" not in text
    assert "\n" not in text


def test_the_doctor_warns_of_it() -> None:
    found = list(agent_findings(AgentsSeen(nodes=1, troubles=("on n1, task saves failed",)), NOW_S))
    assert [(each.check, each.level) for each in found] == [("agents", Level.OK), ("agents-tasks", Level.WARNING)]
    assert "journalctl -u headway-agent" in found[1].mend


def test_failures_are_counted_by_task_and_unknown_names_together() -> None:
    nodes = [node("n1", failed(), failed("strange", 5)), node("n2", failed()), node("n3", failed(), connected=False)]
    counted = _task_failures({each.node: each for each in nodes})
    assert counted == {"reporter": 0, "saves": 6, "watchdog": 0, "other": 5}
