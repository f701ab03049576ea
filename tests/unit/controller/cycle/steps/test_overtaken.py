"""Jobs that their users change while a slow policy decides on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controller.cycle.steps.overtaken import overtaken
from controller.slurm.client import FailureReason
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import Phase
from policies.api import Decision, Policy, load_policy
from policies.heuristics.allocation.drf import Drf
from policies.model import ClusterState
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.examples.build import job, request
from tests.unit.controller.worlds.world import World


class Slow(FakeEndpoint):
    """A server that takes five seconds for its first decision, in which something happens."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.world: World | None = None
        self.happens: Callable[[], None] | None = None

    async def describe(self, deadline_s: float) -> object:
        return self.policy.spec

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        if self.happens is not None and self.world is not None and len(state.pending):
            self.happens()
            self.happens = None
            await self.world.clock.advance(5.0)
        return self.policy.decide(state)


def world_of(folder: Path, policy: Policy) -> tuple[World, Slow]:
    server = Slow(policy)
    server.world = World(folder, endpoint=server)
    return server.world, server


async def test_a_job_that_is_changed_while_the_policy_decides_starts_as_its_user_wants_it(tmp_path: Path) -> None:
    # given two jobs, one of which its user changes while the policy decides
    world, server = world_of(tmp_path, load_policy("fifo"))
    changed, other = world.sbatch(1000.0, gpus_per_node=8), world.sbatch(1000.0, gpus_per_node=8)
    server.happens = lambda: world.slurm.update(changed.job_id, TresPerNode="gres:gpu:2")
    # when the decision is carried out
    await world.turn()
    # then the other job starts, and the changed one is decided on again
    assert world.slurm.job(changed.job_id).held
    assert not world.slurm.job(other.job_id).held
    assert (changed in world.ledger.pins, world.ledger.refusals) == (False, {})
    await world.go_on(3)
    assert list(world.nodes(changed).values()) == [2]
    assert list(world.nodes(other).values()) == [8]


async def test_an_elastic_job_that_is_changed_while_the_policy_decides_keeps_no_size_of_that_decision(
    tmp_path: Path,
) -> None:
    world, server = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    asked = sbatch_request(gpus=4, ntasks=4)
    key = world.sbatch(1000.0, request=asked, comment="headway=min-gpus:1+max-gpus:16")
    server.happens = lambda: world.slurm.update(key.job_id, TresPerJob="gres:gpu:3", NumTasks="3")
    await world.turn()
    assert (world.slurm.job(key.job_id).held, world.ledger.relocations) == (True, {})


async def test_jobs_that_cannot_be_read_before_a_late_start_start_later(tmp_path: Path) -> None:
    world, server = world_of(tmp_path, load_policy("fifo"))
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.slurm.client.hold([key])
    server.happens = lambda: world.slurm.faults.lose_request("read")
    await world.turn()
    assert world.slurm.job(key.job_id).held
    await world.go_on(10)
    assert (world.phase(key), world.ledger.refusals) == (Phase.RUNNING, {})


@pytest.mark.parametrize(
    "change",
    [
        {"request": request(gpus_per_node=2)},
        {"partition": "other"},
        {"qos": "high"},
        {"time_limit_s": 60.0},
        {"comment": "headway=max-gpus:2"},
        {"reservation": "exam"},
    ],
)
def test_every_change_of_a_request_overtakes_a_decision(change: dict[str, object]) -> None:
    decided = job("1")
    found = overtaken([decided], {decided.key: replace(decided, **change)}, {})  # type: ignore[arg-type]
    assert list(found) == [decided.key]


def test_a_job_that_is_the_same_or_shows_another_reason_is_placed() -> None:
    decided = job("1")
    assert not overtaken([decided], {decided.key: decided}, {})
    assert not overtaken([decided], {decided.key: replace(decided, reason="Priority")}, {})


def test_a_remark_in_the_comment_and_the_order_of_partitions_do_not_overtake_a_decision() -> None:
    decided = job("1", partition="a,b", comment="headway=max-gpus:2")
    newest = replace(decided, partition="b,a", comment="headway=max-gpus:2 for the paper")
    assert not overtaken([decided], {decided.key: newest}, {})


def test_a_job_that_is_gone_is_not_placed() -> None:
    found = overtaken([job("1")], {}, {})
    assert [failure.reason for failure in found.values()] == [FailureReason.GONE]


def test_a_reading_overtakes_one_decision_only() -> None:
    """Should a snapshot never show what a single reading shows, the job starts all the same."""
    decided, first, second = job("1"), job("1", qos="high"), job("1", qos="low")
    assert overtaken([decided], {decided.key: first}, {})
    assert not overtaken([decided], {decided.key: first}, {decided.key: first})
    assert overtaken([decided], {decided.key: second}, {decided.key: first})
