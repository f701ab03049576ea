"""Jobs of several partitions: the nodes that policies see of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.cycle.room.partitions import where_they_fit
from controller.observe.observer import Observation, Observer
from controller.slurm.embedded import ClusterDescription
from controller.slurm.embedded.description import PartitionDescription
from controller.slurm.model.cluster import SlurmPartition, SlurmReservation, SlurmSnapshot
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from tests.unit.controller.examples.build import NOW_S, job, node, request, running, snapshot
from tests.unit.controller.worlds.world import World

MEMBERS = {"left": ("n1", "n2"), "right": ("n3", "n4"), "short": ("n1", "n2", "n3", "n4")}
LIMITS = {"short": {"max_time_s": 60.0, "max_nodes": 2}}
PARTITIONS = tuple(
    replace(SlurmPartition(name, frozenset(nodes), True, None), **LIMITS.get(name, {}))
    for name, nodes in MEMBERS.items()
)
NODES = tuple(
    node(name, partitions=frozenset(kind for kind, nodes in MEMBERS.items() if name in nodes))
    for name in MEMBERS["short"]
)


def observed(
    *jobs: SlurmJob,
    now: float = NOW_S,
    partitions: tuple[SlurmPartition, ...] = PARTITIONS,
    reservations: tuple[SlurmReservation, ...] = (),
    ledger: Ledger | None = None,
) -> Observation:
    seen: SlurmSnapshot = snapshot(*jobs, nodes=NODES, partitions=partitions, reservations=reservations, time_s=now)
    return where_they_fit(Observer().observe(seen, ledger or Ledger(), frozenset(MEMBERS)))


def nodes_of(observation: Observation, job_id: str = "1") -> list[str]:
    """Return the nodes that policies see for that job."""
    state = observation.state
    node_set = int(state.jobs.node_set[state.jobs.ids.index(job_id)])
    return [name for at, name in enumerate(state.nodes.names) if node_set < 0 or state.node_sets[node_set, at]]


def waits(partition: str, nodes: int = 1, **changes: object) -> SlurmJob:
    asked = request(gpus_per_node=8, min_nodes=nodes, max_nodes=nodes)
    return job("1", submit=int(NOW_S), partition=partition, request=asked, **changes)


def busy(*names: str) -> SlurmJob:
    return running("9", on=dict.fromkeys(names, 8), partition="short")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_sees_its_first_partition_while_it_fits_there(nodes: int) -> None:
    assert nodes_of(observed(waits("left,right", nodes))) == ["n1", "n2"]
    assert nodes_of(observed(waits("right,left", nodes))) == ["n3", "n4"]


def test_a_job_sees_the_first_partition_in_which_it_fits_now() -> None:
    assert nodes_of(observed(waits("left,right", 2), busy("n1"))) == ["n3", "n4"]
    assert nodes_of(observed(waits("left,right", 1), busy("n1"))) == ["n1", "n2"]
    assert nodes_of(observed(waits("left,right", 1), busy("n1", "n2"))) == ["n3", "n4"]


def test_a_gang_gets_no_nodes_of_two_partitions() -> None:
    # one node is free in each: it fits in neither, and keeps its first
    assert nodes_of(observed(waits("left,right", 2), busy("n1", "n3"))) == ["n1", "n2"]


def test_a_partition_whose_limits_the_job_does_not_keep_does_not_count() -> None:
    assert nodes_of(observed(waits("short,left", time_limit_s=60.0))) == list(MEMBERS["short"])
    assert nodes_of(observed(waits("short,left", time_limit_s=120.0), busy("n1"))) == ["n1", "n2"]
    many = waits("short,left", 3, time_limit_s=60.0)
    assert list(observed(many).to_yield.values()) == ["fits in none of its partitions (short,left)"]
    least = tuple(replace(one, min_nodes=2) if one.name == "left" else one for one in PARTITIONS)
    assert nodes_of(observed(waits("left,right"), partitions=least)) == ["n3", "n4"]


def down(*names: str) -> tuple[SlurmPartition, ...]:
    return tuple(replace(one, up=one.name not in names) for one in PARTITIONS)


def reserved(*nodes: str, begins_in_s: float = -10.0) -> dict[str, Any]:
    begin_s = NOW_S + begins_in_s
    return {"reservations": (SlurmReservation("upkeep", frozenset(nodes), begin_s, begin_s + 7200.0),)}


@pytest.mark.parametrize(
    "now",
    [
        reserved(*MEMBERS["short"]),
        reserved(*MEMBERS["short"], begins_in_s=1800.0),
        {"partitions": down("left", "right")},
        {"partitions": down("left")} | reserved("n3", "n4"),
    ],
)
def test_a_job_whose_partitions_are_all_down_or_reserved_waits(now: dict[str, Any]) -> None:
    seen = observed(waits("left,right"), **now)
    assert (seen.to_yield, nodes_of(seen)) == ({}, [])


def test_a_job_waits_for_a_partition_that_is_down_if_the_others_never_take_it() -> None:
    seen = observed(waits("short,left", time_limit_s=120.0), partitions=down("left"))
    assert (seen.to_yield, nodes_of(seen)) == ({}, [])
    assert observed(waits("short,left", 3, time_limit_s=60.0), partitions=down("left", "short")).to_yield


def test_a_gang_waits_for_the_nodes_of_its_partition_that_are_reserved() -> None:
    seen = observed(waits("left,right", 2), **reserved("n1", "n3"))
    assert (seen.to_yield, nodes_of(seen)) == ({}, ["n2"])


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        (RelocationConstraint(), ["n1", "n2"]),
        (RelocationConstraint(avoid=frozenset({"n1", "n2"})), []),
        (RelocationConstraint(only=frozenset({"n3"})), []),
        (RelocationConstraint(avoid=frozenset({"n1"})), ["n2"]),
    ],
)
def test_a_relocated_job_waits_where_it_may_go_while_its_other_partition_is_down(
    constraint: RelocationConstraint, nodes: list[str]
) -> None:
    one = waits("left,right")
    ledger = Ledger(relocations={one.key: constraint})
    assert nodes_of(observed(one, partitions=down("right"), ledger=ledger)) == nodes


def test_partitions_in_which_a_job_fits_take_turns_after_a_while() -> None:
    # the policy may keep the free nodes of the first for other jobs
    seen = [nodes_of(observed(waits("left,right"), now=NOW_S + after_s))[0] for after_s in (0, 29, 30, 60, 90, 120)]
    assert seen[:2] == ["n1", "n1"]
    assert sorted(seen[2:]) == ["n1", "n1", "n3", "n3"]


def test_other_jobs_are_as_before() -> None:
    alone = Observer().observe(
        snapshot(waits("left"), busy("n1"), nodes=NODES, partitions=PARTITIONS), Ledger(), frozenset(MEMBERS)
    )
    assert where_they_fit(alone) is alone


async def test_a_job_of_several_partitions_starts_after_the_maintenance_of_all_of_them(tmp_path: Path) -> None:
    both = ClusterDescription(partitions=(PartitionDescription(name="dl"), PartitionDescription(name="other")))
    world = World(tmp_path, both, policy="fifo-skip")
    world.settings = world.settings.model_copy(update={"partitions": ("dl", "other")})
    nodes = tuple(node.name for node in (await world.slurm.client.snapshot()).nodes)
    world.slurm.reserve("upkeep", nodes, world.clock.now() - 10, world.clock.now() + 60, maintenance=True)
    waiting = world.sbatch(600.0, gpus_per_node=8, time_limit_s=7200.0, partition="dl,other")
    await world.go_on(20)
    assert (world.phase(waiting), world.ledger.yielded) == (Phase.PENDING, {})
    await world.go_on(60)
    assert world.phase(waiting) is Phase.RUNNING
    assert not world.ledger.yielded
