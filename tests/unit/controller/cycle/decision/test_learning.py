"""The controller shows what a policy that learns says of itself: in its status, and in its metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from controller.admin.messages import policy_info
from controller.admin.metrics.exporter import make_registry
from controller.base.clock import VirtualClock
from controller.cli.render.status import learning_lines
from controller.cycle.decision.decider import Decider
from policies.api import LearningStatus, PolicySpec, load_policy
from policies.errors import PolicyFault, PolicyServerError
from protos.headway.v1 import admin_pb2
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.controller_world import world_in

STATUS = LearningStatus(
    training=True,
    weights_sha256="ab" * 32,
    weights_since_s=900.0,
    history_jobs=300,
    history_bytes=1 << 20,
    outcomes_refused=2,
    feedback_samples=600,
    feedback_updates=70,
    feedback_left_out=3,
    attempts=4,
    promotions=1,
    last_attempt_s=950.0,
    last_result="not better",
    last_reason="not below zero",
    change=0.1,
    ci95=0.2,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@dataclass
class LearningEndpoint(FakeEndpoint):
    """A policy server whose policy learns; `described` counts its descriptions."""

    status: LearningStatus | None = STATUS
    described: int = 0
    describes: bool = True

    async def describe(self, deadline_s: float) -> PolicySpec:
        self.described += 1
        if not self.describes:
            raise PolicyServerError(PolicyFault.UNREACHABLE, "unix:///fake", "it gave no description in time")
        return PolicySpec(name="fake", source="tests", learning=self.status)


@pytest.mark.parametrize("learns", [True, False])
async def test_a_policy_that_learns_describes_itself_again_after_a_while(learns: bool) -> None:
    clock = VirtualClock(1000.0)
    endpoint = LearningEndpoint(status=STATUS if learns else None)
    decider = Decider(endpoint, load_policy("fifo"), 0.5, clock)
    await decider.refresh()
    await decider.refresh()
    assert (endpoint.described, decider.description_is_old) == (1, False)
    await clock.advance(31)
    assert decider.description_is_old is learns
    if learns:
        endpoint.status = replace(STATUS, attempts=5)
    await decider.refresh()
    assert endpoint.described == 1 + learns
    info = policy_info(decider)
    assert info.learning.enabled is learns
    assert info.learning.attempts == 5 * learns
    # a server that is away is not asked for it in every cycle
    endpoint.connected = False
    await clock.advance(31)
    assert not decider.description_is_old


async def test_a_policy_that_decides_and_fails_to_describe_itself_delays_few_cycles() -> None:
    clock = VirtualClock(1000.0)
    endpoint = LearningEndpoint()
    decider = Decider(endpoint, load_policy("fifo"), 0.5, clock)
    await decider.refresh()
    await clock.advance(31)
    endpoint.describes = False
    for _ in range(20):
        await decider.refresh()
        await clock.advance(1)
    assert endpoint.described == 2
    assert decider.serving
    assert decider.last_error == ""
    await clock.advance(31)
    endpoint.describes = True
    await decider.refresh()
    assert endpoint.described == 3


async def test_metrics_show_the_state_of_learning(folder: Path) -> None:
    world = world_in(folder)
    registry = make_registry(world)
    await world.turn()
    assert registry.get_sample_value("headway_policy_history_jobs") is None
    world.decider._server = replace(
        world.decider._server, spec=PolicySpec(name="fake", source="tests", learning=STATUS)
    )
    for name, value in {
        "headway_policy_history_jobs": 300,
        "headway_policy_history_bytes": 1 << 20,
        "headway_policy_outcomes_refused_total": 2,
        "headway_policy_feedback_samples": 600,
        "headway_policy_feedback_updates_total": 70,
        "headway_policy_feedback_left_out_total": 3,
        "headway_policy_learning_attempts_total": 4,
        "headway_policy_promotions_total": 1,
        "headway_policy_training": 1,
        "headway_policy_weights_timestamp_seconds": 900,
        "headway_policy_learning_last_attempt_timestamp_seconds": 950,
        "headway_policy_learning_problem": 0,
        "headway_policy_learning_change": 0.1,
        "headway_policy_learning_change_ci95": 0.2,
    }.items():
        assert registry.get_sample_value(name) == value, name
    results = {
        result: registry.get_sample_value("headway_policy_learning_last_result", {"result": result})
        for result in ("promoted", "not better", "failed", "stopped")
    }
    assert results == {"promoted": 0, "not better": 1, "failed": 0, "stopped": 0}
    assert registry.get_sample_value("headway_policy_weights_info", {"sha256": "ab" * 32}) == 1


def test_the_status_has_a_line_about_learning() -> None:
    assert learning_lines(admin_pb2.PolicyLearning()) == []
    learning = admin_pb2.PolicyLearning(
        enabled=True, weights_sha256="ab" * 32, history_jobs=300, history_bytes=1 << 20, attempts=4, promotions=1,
        last_attempt_s=1.0, last_result="not better", change=0.1, ci95=0.2, training=True, problem="disk full",
    )  # fmt: skip
    (_, line), problem = learning_lines(learning)
    assert line.startswith(
        "weights abababababab, those that it began with; history of 300 jobs (1.0 MiB); 1 of 4 attempts promoted"
    )
    assert line.endswith("not better, average JCT +10.0% ± 20.0%; training now")
    assert problem == ("learning", "PROBLEM: disk full")
    failed = admin_pb2.PolicyLearning(
        enabled=True, attempts=1, last_attempt_s=1.0, last_result="failed", last_reason="killed"
    )
    assert learning_lines(failed)[0][1].endswith("ago: failed: killed")
