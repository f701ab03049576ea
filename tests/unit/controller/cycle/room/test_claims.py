"""Nodes that are emptied for a waiting job, while its user changes it or its nodes are reserved or drained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.cycle.room.claims import Claim, index_of, is_wanted, place_within
from controller.cycle.room.occupancy import free_capacity, occupants_of
from controller.observe.observer import Observation
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.preemption import Preemption
from policies.model import Placement
from tests.unit.controller.cycle.room.test_partitions import busy, observed, waits
from tests.unit.controller.cycle.room.test_preemptions import full, signals, world_of
from tests.unit.controller.examples.build import NOW_S
from tests.unit.controller.worlds.world import World


async def saving(world: World, **more: object) -> tuple[JobKey, list[JobKey]]:
    """Return a job of QOS high, and the jobs that save for it."""
    low = await full(world)
    high = world.sbatch(3000.0, gpus_per_node=8, qos="high", **more)
    await world.go_on(5)
    return high, [key for key in low if signals(world, [key]) == [["USR1"]]]


async def leave(world: World, jobs: list[JobKey]) -> None:
    """Let the jobs requeue themselves, one after the other."""
    for key in jobs:
        world.slurm.requeue(key.job_id)
        await world.go_on(8)


def asked(world: World) -> int:
    """Return the number of jobs that have had a request to save."""
    return len(world.preemptions.since(0.0))


def others(world: World, stopped: list[JobKey]) -> list[Preemption]:
    """Return the open preemptions of other jobs than these."""
    known = {key.job_id for key in stopped}
    return [one for one in world.preemptions.open.values() if one.job_id not in known]


async def test_a_job_that_is_made_smaller_while_others_save_starts_as_it_is_now(tmp_path: Path) -> None:
    # given a job on two nodes for which two others save
    world = world_of(tmp_path)
    high, stopped = await saving(world, nodes=2)
    assert len(stopped) == 2
    # when its user wants one node, and the others leave, the second one first
    world.slurm.update(high.job_id, NumNodes="1-1", NumTasks="1", NumCPUs="1")
    await world.go_on(3)
    first = next(iter(world.nodes(stopped[1])))
    await leave(world, stopped[1:])
    # then it starts on one, as soon as that is empty, and keeps its user's size
    assert world.nodes(high) == {first: 8}
    assert high not in world.ledger.relocations
    await leave(world, stopped[:1])
    assert [world.phase(key) for key in stopped].count(Phase.RUNNING) == 1
    assert asked(world) == 2


async def test_a_job_that_is_made_larger_while_another_saves_waits_for_all_of_its_nodes(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    high, stopped = await saving(world)
    world.slurm.update(high.job_id, NumNodes="2-2", NumTasks="2", NumCPUs="2")
    await world.go_on(3)
    assert asked(world) == 2
    await leave(world, stopped)
    assert world.phase(high) is Phase.PENDING
    (other,) = others(world, stopped)
    world.slurm.requeue(other.job_id)
    await world.go_on(8)
    assert len(world.nodes(high)) == 2


async def test_a_job_that_excludes_the_emptied_node_gets_another_one(tmp_path: Path) -> None:
    # given a job for which another one saves
    world = world_of(tmp_path)
    high, stopped = await saving(world)
    (node,) = world.nodes(stopped[0])
    # when its user excludes that node
    world.slurm.update(high.job_id, ExcNodeList=node)
    await world.go_on(3)
    # then another job saves for it, and it starts there; it was not given to Slurm
    assert asked(world) == 2
    (other,) = others(world, stopped)
    await leave(world, stopped)
    assert (world.phase(high), world.nodes(stopped[0])) == (Phase.PENDING, {node: 8})
    world.slurm.requeue(other.job_id)
    await world.go_on(8)
    assert world.nodes(high) == dict.fromkeys(other.nodes, 8)
    assert high not in world.ledger.yielded
    texts = [event.text for event in world.events.recent(high.job_id)]
    assert (
        f"gives up {node}, which others leave for it: its request, or the nodes that it may use, have changed" in texts
    )


@pytest.mark.parametrize("change", ["reserved", "drained"])
async def test_a_node_that_is_reserved_or_drained_while_a_job_saves_is_not_waited_for(
    tmp_path: Path, change: str
) -> None:
    world = world_of(tmp_path)
    high, stopped = await saving(world, time_limit_s=3600.0)
    (node,) = world.nodes(stopped[0])
    if change == "reserved":
        world.slurm.reserve("exam", (node,), world.clock.now() + 10, world.clock.now() + 7200)
    else:
        world.slurm.node_drain(node)
    await world.go_on(3)
    assert asked(world) == 2
    (other,) = others(world, stopped)
    await leave(world, stopped)
    world.slurm.requeue(other.job_id)
    await world.go_on(8)
    assert world.nodes(high) == dict.fromkeys(other.nodes, 8)
    assert high not in world.ledger.refusals


async def test_other_jobs_may_use_the_nodes_in_the_cycle_that_reads_the_change(tmp_path: Path) -> None:
    # given a node that has just been emptied for a job, and another job of QOS low that waits
    world = world_of(tmp_path)
    high, stopped = await saving(world)
    (node,) = world.nodes(stopped[0])
    world.slurm.requeue(stopped[0].job_id)
    await world.clock.advance(5.0)
    # when its user excludes the node
    world.slurm.update(high.job_id, ExcNodeList=node)
    result = await world.turn()
    # then the other one gets it at once
    assert result.decided is not None
    assert [result.observation.rows[start.row].key.job_id for start in result.decided.plan.starts] == [
        stopped[0].job_id
    ]


async def test_a_job_that_was_refused_because_its_nodes_were_away_has_others_save_again(tmp_path: Path) -> None:
    # given a node that is reserved in the moment in which the job is bound to it
    world = world_of(tmp_path)
    high, stopped = await saving(world, time_limit_s=3600.0)
    (node,) = world.nodes(stopped[0])
    world.slurm.requeue(stopped[0].job_id)
    await world.clock.advance(5.0)

    def reserve() -> None:
        world.on_progress = lambda: None
        world.slurm.reserve("exam", (node,), world.clock.now() + 10, world.clock.now() + 7200)

    world.on_progress = reserve
    await world.go_on(20)
    assert world.ledger.refusals[high].slurm_reason.startswith("ReqNodeNotAvail")
    # then another job is asked to save for it, and Slurm stops none
    assert asked(world) == 2
    assert high not in world.ledger.pins


# --- one observation


def claimed(was: SlurmJob, *nodes: str, gpus: int = 8) -> Claim:
    """Return the claim of a job on GPUs of each of these nodes."""
    observation = observed(was)
    index = index_of(observation)
    placement = Placement.of({index[node]: gpus for node in nodes})
    return Claim.of(was, placement, observation.state.nodes.names, NOW_S + 60.0, "")


def wanted(claim: Claim, observation: Observation) -> bool:
    return is_wanted(claim, observation, observation.state.jobs.ids.index("1"), index_of(observation))


def place(claim: Claim, observation: Observation) -> list[str] | None:
    """Return the nodes on which the job gets a place when all that is claimed is empty."""
    row, index, names = observation.state.jobs.ids.index("1"), index_of(observation), observation.state.nodes.names
    occupants = occupants_of(observation)
    now = free_capacity(observation, occupants)
    later = now.without((shares, False) for _, shares in occupants)
    found = place_within(claim, observation, row, index, later, now)
    return None if found is None else [names[node] for node in found[1].nodes]


@pytest.mark.parametrize(
    ("now", "nodes"),
    [
        (waits("left,right", 2), ["n3", "n4"]),
        (waits("right,left", 2), ["n3", "n4"]),
        (waits("left,right", 2, time_limit_s=60.0), ["n3", "n4"]),
        (waits("left,right", 1), ["n3"]),
    ],
    ids=["the same", "other order", "other limit", "smaller"],
)
def test_a_claim_follows_the_job_of_several_partitions(now: SlurmJob, nodes: list[str]) -> None:
    claim, observation = claimed(waits("left,right", 2), "n3", "n4"), observed(now)
    assert wanted(claim, observation)
    assert place(claim, observation) == nodes


@pytest.mark.parametrize(
    ("nodes", "now"),
    [
        (("n3", "n4"), waits("left", 2)),
        (("n3", "n4"), waits("left,right", 2, qos="low")),
        (("n3",), waits("left,right", 2)),
    ],
    ids=["other partitions", "other QOS", "larger"],
)
def test_a_claim_ends_when_the_job_could_not_start_there(nodes: tuple[str, ...], now: SlurmJob) -> None:
    claim = claimed(waits("left,right", len(nodes)), *nodes)
    assert not wanted(claim, observed(now))


def test_a_smaller_job_starts_on_the_node_that_is_empty_first() -> None:
    claim = claimed(waits("left,right", 2), "n3", "n4")
    assert place(claim, observed(waits("left,right", 1), busy("n3"))) == ["n4"]


def test_a_job_that_wants_more_of_each_node_than_is_claimed_has_no_place_there() -> None:
    claim, observation = claimed(waits("left,right", 2), "n3", "n4", gpus=4), observed(waits("left,right", 1))
    assert not wanted(claim, observation)
    assert place(claim, observation) is None


def test_a_node_that_is_no_longer_managed_is_not_claimed() -> None:
    claim = replace(claimed(waits("right"), "n3"), nodes=("gone",))
    assert not wanted(claim, observed(waits("right")))
