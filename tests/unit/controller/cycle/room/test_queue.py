"""Waiting jobs for which others are stopped, in Slurm's order."""

from __future__ import annotations

from dataclasses import replace

from controller.cycle.decision.plan import Start
from controller.cycle.room.queue import Cluster
from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observer
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.priorities.preemption import PreemptionRules
from controller.state.ledger import Ledger
from policies.model import Placement
from tests.unit.controller.examples.build import NOW_S, job, node, request, running, snapshot

NAMES = ("n1", "n2", "n3")
TIERS = {"top": 20, "dl": 10, "low": 1}
PARTITIONS = tuple(SlurmPartition(name, frozenset(NAMES), True, None, tier) for name, tier in TIERS.items())
SECOND = (*PARTITIONS, SlurmPartition("one", frozenset({"n2"}), True, None, 20))
RULES = PreemptionRules(by_qos=False, mode="REQUEUE", exempt_s=60.0)


def low(number: int, *, since: float = NOW_S - 100, **changes: object) -> SlurmJob:
    return running(f"9{number}", on={f"n{number}": 8}, partition="low", since=since, **changes)


def waits(job_id: str, partition: str = "dl", nodes: int = 1) -> SlurmJob:
    return job(job_id, partition=partition, request=request(gpus_per_node=8, min_nodes=nodes, max_nodes=nodes))


def stops(
    *jobs: SlurmJob,
    leaving: frozenset[str] = frozenset(),
    starts: tuple[Start, ...] = (),
    partitions: tuple[SlurmPartition, ...] = PARTITIONS,
) -> dict[str, list[str]]:
    """Return the jobs that would be stopped, by the job that they are stopped for."""
    knowledge = Knowledge()
    knowledge.set_priorities(PriorityFacts())
    nodes = tuple(
        node(name, partitions=frozenset(one.name for one in partitions if name in one.nodes)) for name in NAMES
    )
    seen = snapshot(*jobs, nodes=nodes, partitions=partitions)
    observation = Observer(knowledge).observe(seen, Ledger(), frozenset(one.name for one in partitions))
    cluster = Cluster(observation, RULES, lambda one: one.key.job_id in leaving, starts)
    taken = {start.row for start in starts}
    queue = [row for row in observation.state.pending.tolist() if row not in taken]
    return {
        observation.rows[one.row].key.job_id: sorted(stop.job.key.job_id for stop in one.room.stops)
        for one in cluster.wanted(queue)
    }


def test_the_highest_tier_is_served_first_and_no_job_is_stopped_for_two() -> None:
    found = stops(low(1), low(2), low(3), waits("1", nodes=2), waits("2", "top", nodes=2))
    assert found == {"2": ["91", "92"]}
    both = stops(low(1), low(2), low(3), waits("1"), waits("2", "top", nodes=2))
    assert both == {"2": ["91", "92"], "1": ["93"]}


def test_a_job_within_its_exempt_time_stays() -> None:
    assert stops(low(1, since=NOW_S - 59), low(2, since=NOW_S - 59), low(3), waits("1")) == {"1": ["93"]}


def test_jobs_of_an_equal_tier_wait() -> None:
    assert stops(low(1), low(2), low(3), waits("1", "low")) == {}


def test_no_further_job_is_stopped_while_enough_of_them_leave() -> None:
    assert stops(low(1), low(2), low(3), waits("1"), leaving=frozenset({"92"})) == {"1": []}
    ending = replace(low(2), phase=Phase.COMPLETING)
    assert stops(low(1), ending, low(3), waits("1", nodes=2)) == {"1": ["91"]}


def test_nodes_that_a_job_gets_in_this_cycle_are_not_free() -> None:
    start = Start(0, Placement((2,), (8,)), "")
    assert stops(low(1), low(2), waits("1"), waits("2"), starts=(start,)) == {"2": ["91"]}


def test_a_job_of_several_partitions_takes_a_place_in_each_that_allows_it() -> None:
    # of low it may stop none; of partition one, those on n2
    full = (low(1), low(2), low(3))
    assert stops(*full, waits("1", "low,one"), partitions=SECOND) == {"1": ["92"]}
    assert stops(*full, waits("1", "low,one", nodes=2), partitions=SECOND) == {}
