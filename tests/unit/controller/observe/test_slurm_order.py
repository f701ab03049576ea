"""Slurm's order in what policies see: priorities of waiting jobs, tiers of all."""

from __future__ import annotations

import numpy as np

from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observer
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.job import SlurmJob
from controller.slurm.model.shares import Shares
from controller.slurm.priorities.weights import PriorityWeights
from controller.state.ledger import Ledger, Served
from policies.model import Jobs
from tests.unit.controller.examples.build import NOW_S, job, request, running, snapshot

PARTITIONS = (
    SlurmPartition("dl", frozenset({"n1", "n2"}), True, None),
    SlurmPartition("hi", frozenset({"n1", "n2"}), True, None, 5, 1),
)


def seen(*jobs: SlurmJob, facts: PriorityFacts | None, ledger: Ledger | None = None) -> Jobs:
    knowledge = Knowledge()
    knowledge.set_priorities(facts)
    now = snapshot(*jobs, partitions=PARTITIONS)
    return Observer(knowledge).observe(now, ledger or Ledger(), frozenset({"dl", "hi"})).state.jobs


def test_without_facts_there_are_no_columns() -> None:
    jobs = seen(job(), facts=None)
    assert jobs.slurm_priority is None
    assert jobs.partition_tier is None


def test_with_the_basic_plugin_jobs_keep_their_order_but_for_nice_values() -> None:
    jobs = seen(
        job("7"), job("8", nice=5), job("9", partition="dl,hi"), running("10", on={"n1": 1}), facts=PriorityFacts()
    )
    assert jobs.slurm_priority is not None
    assert jobs.partition_tier is not None
    order = dict(zip(jobs.ids, jobs.slurm_priority.tolist(), strict=True))
    assert order["7"] > order["9"] > order["8"]
    assert np.isnan(order["10"])
    assert dict(zip(jobs.ids, jobs.partition_tier.tolist(), strict=True)) == {"7": 1, "8": 1, "9": 5, "10": 1}


def test_factors_come_from_the_users_own_request_and_from_the_job() -> None:
    weights = PriorityWeights(age=1000.0, fairshare=100.0, qos=10.0, tres={"gres/gpu": 3200.0}, max_age_s=2000.0)
    shares = Shares({("lab", "ann", ""): 0.5}, {"high": 4})
    plain = job("1", request=request(gpus_per_node=2))
    rich = job("2", account="lab", qos="high", nice=-7, request=request(gpus_per_node=2))
    later = job("3", eligible_time_s=NOW_S - 100.0)
    jobs = seen(plain, rich, later, facts=PriorityFacts(weights, shares))
    assert jobs.slurm_priority is not None
    # 1,000 s since the submission, and 2 of 32 GPUs; then fair share, QOS and nice value; then 100 s, and 1 GPU
    assert jobs.slurm_priority.tolist() == [500 + 200, 500 + 200 + 50 + 10 + 7, 50 + 100]


def test_a_job_that_was_stopped_keeps_its_age() -> None:
    weights = PriorityWeights(age=1000.0, max_age_s=2000.0)
    stopped = job("1", submit=int(NOW_S) - 60, restarts=1)
    ledger = Ledger(served={stopped.key: Served(0.0, 0.0, int(NOW_S) - 1000)})
    jobs = seen(stopped, facts=PriorityFacts(weights), ledger=ledger)
    assert jobs.slurm_priority is not None
    assert jobs.slurm_priority.tolist() == [500.0]
