"""No job is moved to a node whose agent is silent; and none waits for that for ever."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from controller.base.clock import Clock, RealClock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.decision.plan import Plan, Stop
from controller.cycle.decision.policy_stops import PolicyStops
from controller.cycle.decision.stop_groups import StopGroup
from controller.observe.observer import Observer
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.preempt.preemptibility import Preemptibility
from controller.preempt.reports.silent_nodes import KEPT_OFF_S, kept_off, silent_nodes
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from policies.model import Placement
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.admin.test_service import asking
from tests.unit.controller.contention.test_relocation import SHARED, A, B, relocations
from tests.unit.controller.examples.build import NOW_S, job, snapshot
from tests.unit.controller.examples.slowed import DL
from tests.unit.controller.worlds.preempted import SavingAgent, preempted_world

if TYPE_CHECKING:
    from controller.preempt.manager import PreemptionManager

STOPPED = Preemption(
    1, "5", 5, 0, 0, Cause.OPERATOR, "", PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",),
    constraint=RelocationConstraint(), within_s=60.0,
    stage=Stage.STOPPED, asked_s=1000.0, stopped_s=1000.0,
)  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def test_nodes_are_silent_only_where_agents_are_in_use() -> None:
    assert silent_nodes(["n1", "n2", "n3"], {"n1", "x9"}) == {"n2", "n3"}
    assert silent_nodes(["n1", "n2"], set()) == silent_nodes(["n1", "n2"], {"x9"}) == frozenset()


def test_stopped_jobs_avoid_silent_nodes_for_a_bounded_time() -> None:
    waiting = replace(job("5"), raw_id=5)
    silent = frozenset({"n2"})
    assert kept_off([waiting, replace(job("6"), raw_id=6)], {5}, silent) == {waiting.key: silent}
    assert kept_off([waiting], {5}, frozenset()) == {}
    assert kept_off([replace(waiting, phase=Phase.RUNNING)], {5}, silent) == {}
    attempt = PreemptionAttempt(STOPPED, deadline=0.0, stopped_at=7.0)
    assert attempt.is_just_stopped(8.0, 1001.0)
    assert not attempt.is_just_stopped(7.0 + KEPT_OFF_S, 1000.0 + KEPT_OFF_S)
    assert replace(attempt, row=replace(STOPPED, stage=Stage.STARTED)).is_just_stopped(8.0, 1001.0)
    for other in (replace(STOPPED, way=PreemptionMethod.SIGNAL), replace(STOPPED, stage=Stage.SAVED)):
        assert not replace(attempt, row=other).is_just_stopped(8.0, 1001.0)


@pytest.mark.parametrize("now_s", [999.0, 1000.0 - 3600.0, 1000.0 + 3600.0])
def test_a_clock_that_was_set_does_not_end_that_time(now_s: float) -> None:
    attempt = PreemptionAttempt(STOPPED, deadline=0.0, stopped_at=7.0)
    assert attempt.is_just_stopped(8.0, now_s)
    assert not attempt.is_just_stopped(7.0 + KEPT_OFF_S, now_s)


def test_a_controller_that_started_while_the_clock_was_ahead_goes_by_the_clock_that_was_set_right() -> None:
    attempt = PreemptionAttempt(STOPPED, deadline=0.0, stopped_at=7.0 - 3600.0)
    assert not attempt.is_just_stopped(7.0, 1000.0 + 3600.0)
    assert attempt.is_just_stopped(8.0, 1001.0)


async def test_a_moved_job_waits_for_a_bounded_time_rather_than_go_where_the_agent_is_silent(folder: Path) -> None:
    # given three jobs on three of four nodes; the agent of the fourth is silent
    async with preempted_world(folder, ("n1", "n2", "n3")) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        mine = await cluster.running(8, nodes=1)
        others = [await cluster.running(8, nodes=1) for _ in range(2)]
        assert [share.node for each in (mine, *others) for share in each.allocated] == ["n1", "n2", "n3"]
        # when an ordinary job comes, then it starts on the fourth at once
        short = world.sbatch(10.0, gpus_per_node=8)
        await world.go_on(3)
        assert list(world.nodes(short)) == ["n4"]
        await world.go_on(15)
        # when one is moved off its node
        await admin.Preempt(pb.PreemptRequest(job_id=mine.key.job_id, away=True))
        await cluster.comes_to(Stage.SAVED)
        await world.cycle.errands()
        await world.go_on(60)
        await world.turn()
        # then it waits, though the fourth is free, and says why
        assert world.phase(mine.key) is Phase.PENDING
        why = await admin.Why(pb.WhyRequest(job_id=mine.key.job_id))
        assert (
            "it continues from a checkpoint and is not placed on n4 because the agent there is not connected"
            in why.sentence
        )
        # and after the time it goes there all the same
        await world.go_on(KEPT_OFF_S - 80)
        assert world.phase(mine.key) is Phase.PENDING
        await world.go_on(40)
        assert list(world.nodes(mine.key)) == ["n4"]


async def test_a_moved_job_boots_a_node_that_power_saving_has_off(folder: Path) -> None:
    async with preempted_world(folder, ("n1", "n2", "n3")) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        world.slurm.node_sleep("n4", boot_s=30.0)
        mine, *_ = [await cluster.running(8, nodes=1) for _ in range(3)]
        await admin.Preempt(pb.PreemptRequest(job_id=mine.key.job_id, away=True))
        await cluster.comes_to(Stage.SAVED)
        await world.cycle.errands()
        await world.go_on(10)
        assert list(world.nodes(mine.key)) == ["n4"]
        assert world.phase(mine.key) is Phase.CONFIGURING


class _Ahead(RealClock):
    """The clock of a machine on which it is an hour later than it is."""

    def __init__(self, right: Clock) -> None:
        self._right = right

    def now(self) -> float:
        return self._right.now() + 3600.0


async def test_a_job_that_was_stopped_while_the_clock_was_ahead_goes_to_no_silent_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder, ("n1", "n2", "n3")) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        mine, *_ = [await cluster.running(8, nodes=1) for _ in range(3)]
        await admin.Preempt(pb.PreemptRequest(job_id=mine.key.job_id, away=True))
        await cluster.comes_to(Stage.SAVED)
        with monkeypatch.context() as patch:
            patch.setattr(world.preemptions._orders, "_clock", _Ahead(world.clock))
            await world.cycle.errands()
        assert cluster.row().stage is Stage.STOPPED
        await world.go_on(20)
        assert world.phase(mine.key) is Phase.PENDING


async def test_a_job_may_use_a_node_as_soon_as_its_agent_is_back(folder: Path) -> None:
    async with preempted_world(folder, ("n1", "n2", "n3")) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        mine, *_ = [await cluster.running(8, nodes=1) for _ in range(3)]
        await admin.Preempt(pb.PreemptRequest(job_id=mine.key.job_id, away=True))
        await cluster.comes_to(Stage.SAVED)
        await world.cycle.errands()
        await world.go_on(20)
        assert world.phase(mine.key) is Phase.PENDING
        async with SavingAgent(cluster.server.address, "n4").running() as agent:
            await agent.connected()
            await world.go_on(5)
            assert list(world.nodes(mine.key)) == ["n4"]


def test_no_place_is_found_on_silent_nodes() -> None:
    found, rows = relocations(A, B, nodes=5)
    first = found.find(rows["1"], A, SHARED)
    assert first is not None
    assert first.nodes == ("n3", "n4")
    found._silent = frozenset({"n3"})
    other = found.find(rows["1"], A, SHARED)
    assert other is not None
    assert other.nodes == ("n4", "n5")
    assert "n3" in other.constraint.avoid


class Cluster:
    """Stands for the preemption manager of a cluster in which the agent of n3 is not connected."""

    open: Mapping[int, Preemption] = {}

    def __init__(self) -> None:
        self.asked: list[str] = []

    def silent(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        return frozenset({"n3"})

    def since(self, time_s: float) -> list[Preemption]:
        return []

    def preemptibility(self, job: SlurmJob) -> Preemptibility:
        return Preemptibility(PreemptionMethod.CHECKPOINT)

    def begin(self, job: SlurmJob, *_: object) -> None:
        self.asked.append(job.key.job_id)


@pytest.mark.parametrize(("node", "asked"), [(2, []), (3, ["1"]), (None, ["1"])])
def test_a_policy_moves_no_job_to_a_silent_node(node: int | None, asked: list[str]) -> None:
    cluster, events = Cluster(), EventLog(RealClock())
    stops = PolicyStops(cast("PreemptionManager", cluster), Ledger(), events)
    observation = Observer().observe(snapshot(A, nodes=4), Ledger(), DL)
    placement = None if node is None else Placement((node,), (8,))
    plan = Plan((), (), stops=(Stop(0, "", placement),), groups=(StopGroup((0,), None),))
    settings = ControllerSettings(partitions=("dl",), preemption="automatic", preemption_min_run_s=0.0)
    stops.begin(plan, observation, "las", settings, NOW_S)
    assert cluster.asked == asked
    refused = [event.text for event in events.recent("1")]
    assert [text for text in refused if "where the agent is not connected" in text] == refused
    assert len(refused) == (not asked)
