"""Slurm's preemption beside an embedded Slurm: jobs that Headway stops itself, and jobs that Slurm is to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.observe.slurm_order import PriorityFacts
from controller.slurm.embedded import ClusterDescription, GpuLimit
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.shares import QosPreemption, Shares
from controller.slurm.priorities.preemption import PreemptionRules
from controller.state.preemption import Cause, Stage
from tests.unit.controller.worlds.world import World

COMES_BACK = {"comment": "headway=preemptible", "traps": frozenset({"USR1"})}
AUTOMATIC = {"preemption": "automatic"}
TABLE = {"high": QosPreemption(frozenset({"low"})), "low": QosPreemption(), "normal": QosPreemption()}


def world_of(
    folder: Path,
    policy: str = "fifo",
    settings: dict[str, object] = AUTOMATIC,
    limits: tuple[GpuLimit, ...] = (),
    **table: QosPreemption,
) -> World:
    world = World(folder, ClusterDescription(limits=limits), policy=policy, settings_changes=settings)
    qos = TABLE | table
    shares = Shares(qos={"high": 100}, preemption=qos)
    rules = PreemptionRules(by_qos=True, mode="REQUEUE", qos=qos, priorities=shares.qos, kill_s=5.0)
    world.knowledge.set_priorities(PriorityFacts(None, shares, rules))
    return world


async def full(world: World, **more: object) -> list[JobKey]:
    """Four jobs of QOS low that take the whole cluster for an hour, and run."""
    keys = [world.sbatch(3600.0, gpus_per_node=8, qos="low", **(COMES_BACK | more)) for _ in range(4)]
    await world.go_on(5)
    assert {world.phase(key) for key in keys} == {Phase.RUNNING}
    return keys


def signals(world: World, keys: list[JobKey]) -> list[list[str]]:
    return [world.slurm.job(key.job_id).signals for key in keys]


@pytest.mark.parametrize("policy", ["fifo", "las", "backfill"])
async def test_jobs_that_can_save_are_stopped_by_headway_and_the_job_gets_their_place(
    tmp_path: Path, policy: str
) -> None:
    # given a full cluster of jobs of QOS low that can come back, and more of them in the queue
    world = world_of(tmp_path, policy)
    low = await full(world)
    more = world.sbatch(3600.0, gpus_per_node=8, qos="low")
    # when a gang of QOS high is submitted
    high = world.sbatch(30.0, gpus_per_node=8, nodes=2, qos="high")
    await world.go_on(5)
    # then two are asked to save, once, and it waits for them
    assert sorted(signals(world, low)) == [[], [], ["USR1"], ["USR1"]]
    stopped = [key for key, got in zip(low, signals(world, low), strict=True) if got]
    row = world.preemptions.open[int(stopped[0].job_id)]
    assert (row.cause, row.stage) == (Cause.SLURM, Stage.ASKED)
    assert row.why == f"job {high.job_id} takes its place: QOS high preempts low"
    decided = (await world.turn()).decided
    assert decided is not None
    assert any("saved and stopped for it: QOS high preempts low" in why for why in decided.plan.making_room.values())
    # when the first has saved, and after a while the second
    for key in stopped:
        world.slurm.requeue(key.job_id)
        await world.go_on(8)
    # then it has both nodes, whatever the policy's order, and the others wait
    assert world.phase(high) is Phase.RUNNING
    assert {world.phase(key) for key in (*stopped, more)} == {Phase.PENDING}
    await world.go_on(60)
    assert world.slurm.job(high.job_id).state == "COMPLETED"
    assert len(world.preemptions.since(0.0)) == 2


@pytest.mark.parametrize(
    ("of_low", "nodes", "qos"),
    [
        ({}, 1, "normal"),
        ({"mode": "OFF"}, 1, "high"),
        ({"exempt_s": 7200.0}, 1, "high"),
    ],
    ids=["no preemption", "off", "exempt"],
)
async def test_no_job_is_stopped_against_slurms_rules(
    tmp_path: Path, of_low: dict[str, object], nodes: int, qos: str
) -> None:
    world = world_of(tmp_path, low=QosPreemption(**of_low))
    low = await full(world)
    waits = world.sbatch(30.0, gpus_per_node=8, nodes=nodes, qos=qos)
    await world.go_on(10)
    assert world.phase(waits) is Phase.PENDING
    assert signals(world, low) == [[]] * 4


async def test_no_job_is_stopped_for_one_that_would_not_start_with_it(tmp_path: Path) -> None:
    # given jobs of QOS low on two nodes, and others on the rest
    world = world_of(tmp_path)
    low = [world.sbatch(3600.0, gpus_per_node=8, qos="low", **COMES_BACK) for _ in range(2)]
    for _ in range(2):
        world.sbatch(3600.0, gpus_per_node=8, qos="normal", **COMES_BACK)
    await world.go_on(5)
    # when a gang of QOS high needs three nodes
    high = world.sbatch(30.0, gpus_per_node=8, nodes=3, qos="high")
    await world.go_on(10)
    assert (world.phase(high), signals(world, low)) == (Phase.PENDING, [[], []])


async def test_jobs_that_cannot_save_are_left_to_slurm_which_has_time_to_stop_them(tmp_path: Path) -> None:
    # given jobs that could not continue after a stop
    world = world_of(tmp_path, low=QosPreemption(grace_s=20.0))
    low = await full(world, comment="")
    # when one of QOS high waits
    high = world.sbatch(30.0, gpus_per_node=8, qos="high")
    await world.go_on(3)
    # then it is bound to a node and released, so that Slurm preempts there
    pin = world.ledger.pins[high]
    assert (len(pin.nodes), pin.frees_s) == (1, 20.0 + 5.0 + 30.0)
    assert not world.slurm.job(high.job_id).held
    victim = next(key for key in low if pin.nodes[0] in world.nodes(key))
    assert pin.reason == f"job {victim.job_id} is stopped by Slurm for it: QOS high preempts low"
    assert signals(world, low) == [[]] * 4
    # and it is not taken back while Slurm may still be at it
    await world.go_on(40)
    assert world.ledger.pins.get(high) == pin
    # and when Slurm does not preempt after all, it is, and is tried again
    await world.go_on(40)
    assert world.ledger.refusals[high].places == 1


async def test_a_job_that_does_not_save_in_time_is_left_to_slurm(tmp_path: Path) -> None:
    world = world_of(tmp_path, settings=AUTOMATIC | {"preemption_within_s": 10.0})
    low = await full(world)
    high = world.sbatch(30.0, gpus_per_node=8, nodes=4, qos="high")
    await world.go_on(5)
    assert signals(world, low) == [["USR1"]] * 4
    await world.go_on(15)
    assert signals(world, low) == [["USR1"]] * 4
    assert world.ledger.pins[high].frees_s > 0


async def test_jobs_save_at_most_once_for_a_job_that_slurm_refuses(tmp_path: Path) -> None:
    # given a user who may use four GPUs, and a full cluster
    limits = (GpuLimit(user="bob", gpus=4, reason="QOSMaxGRESPerUser"),)
    world = world_of(tmp_path, limits=limits)
    low = await full(world)
    high = world.sbatch(30.0, gpus_per_node=8, qos="high", user="bob")
    await world.go_on(5)
    (stopped,) = [key for key in low if signals(world, [key]) == [["USR1"]]]
    # when one has saved for a job that Slurm then refuses for the limit
    world.slurm.requeue(stopped.job_id)
    await world.go_on(120)
    # then that one runs again, and no other is asked to save
    assert world.ledger.refusals[high].slurm_reason == "QOSMaxGRESPerUser"
    assert {world.phase(key) for key in low} == {Phase.RUNNING}
    assert sum(map(len, signals(world, low))) == 1


async def emptied(world: World) -> tuple[JobKey, JobKey]:
    """Return a job of QOS high, and the job that has saved and left its node for it since the last cycle."""
    low = await full(world)
    high = world.sbatch(1000.0, gpus_per_node=8, qos="high")
    await world.go_on(5)
    (stopped,) = [key for key in low if world.slurm.job(key.job_id).signals]
    world.slurm.requeue(stopped.job_id)
    await world.clock.advance(5.0)
    return high, stopped


async def test_a_start_that_is_lost_on_emptied_nodes_is_made_again(tmp_path: Path) -> None:
    # given a node that was emptied for a job, and a slurmctld that does not answer when the job is bound to it
    world = world_of(tmp_path)
    high, stopped = await emptied(world)
    world.slurm.faults.lose_request("pin")
    await world.turn()
    assert world.phase(high) is Phase.PENDING
    # then it gets the node in a later cycle
    await world.go_on(10)
    assert world.phase(high) is Phase.RUNNING
    assert world.phase(stopped) is Phase.PENDING
    assert len(world.preemptions.since(0.0)) == 1


async def test_a_node_that_is_emptied_for_a_job_that_is_gone_takes_others_at_once(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    high, stopped = await emptied(world)
    world.slurm.cancel(high.job_id)
    result = await world.turn()
    assert result.decided is not None
    assert [result.observation.rows[start.row].key.job_id for start in result.decided.plan.starts] == [stopped.job_id]
