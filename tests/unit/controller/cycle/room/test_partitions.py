"""Jobs of several partitions: the nodes that policies see of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.cycle.room.partitions import where_they_fit
from controller.observe.observer import Observation, Observer
from controller.slurm.client import SlurmJob, SlurmPartition, SlurmSnapshot
from controller.state.ledger import Ledger
from tests.unit.controller.examples.build import NOW_S, job, node, request, running, snapshot

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


def observed(*jobs: SlurmJob, now: float = NOW_S, partitions: tuple[SlurmPartition, ...] = PARTITIONS) -> Observation:
    seen: SlurmSnapshot = snapshot(*jobs, nodes=NODES, partitions=partitions, time_s=now)
    return where_they_fit(Observer().observe(seen, Ledger(), frozenset(MEMBERS)))


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
    assert "fits on none of them now" in next(iter(observed(many).to_yield.values()))
    least = tuple(replace(one, min_nodes=2) if one.name == "left" else one for one in PARTITIONS)
    assert nodes_of(observed(waits("left,right"), partitions=least)) == ["n3", "n4"]


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
