"""The part of a queue that is sent to a policy: decisions on it are those on the whole queue, and only it goes over the wire."""

from __future__ import annotations

import asyncio
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.api import Decision, PolicySpec, installed_policies, load_policy, parse_policy
from policies.heuristics.orders.fifo import Fifo
from policies.model import ClusterState, EstimateSource, Placement, ProfileTable, Split
from policies.serving.queue_cut import cut_queue
from policies.serving.remote import RemotePolicy
from policies.wire.messages import parse_state, serialize_state, state_digest
from tests.unit.policies.serving.test_server import serving
from tests.unit.policies.states.cluster import Job, Node, cluster

CONSIDERING_FIRST = (
    "fifo", "fifo:layout=anywhere", "sched2-fifo", "sched2-sif:window=3", "sched2-lrf:window=3", "sched2-spf:window=1",
    "sched2-saf:window=4", "sched2-spf-local:window=3", "sched2-delay:window=5,patience=0.01", "rl-taps-sjf",
    "rl-taps-tetris", "rl-taps-random:slots=3,seed=7",
)  # fmt: skip
"""Policies that consider the first waiting jobs only, by their options if not always."""
CONSIDERING_ALL = (
    "fifo:order=slurm",
    "fifo-skip",
    "backfill",
    "srtf",
    "sched2-sif",
    "sched2-dsif:window=3",
    "rl-taps-sjf:slots=0",
)


def crowded(seed: int) -> ClusterState:
    """A random state of few nodes on which some jobs run, and many more wait than fit."""
    rng = np.random.default_rng(seed)
    nodes = [
        Node(
            gpus=int(rng.choice([2, 4, 8])),
            cpus=int(rng.choice([0, 16])),
            available=rng.random() > 0.1,
            foreign_gpus=int(rng.random() < 0.2),
        )
        for _ in range(rng.integers(1, 5))
    ]
    free = [node.gpus - node.foreign_gpus for node in nodes]
    jobs = []
    for _ in range(rng.integers(20, 60)):
        job = _request(rng, len(nodes))
        node = int(rng.integers(len(nodes)))
        if rng.random() < 0.3 and 0 < job.gpus <= free[node]:
            free[node] = 0 if job.exclusive else free[node] - job.gpus
            job = replace(job, occupied={node: job.gpus}, split=Split.ANY, min_nodes=1, cpus_per_gpu=0.0)
        jobs.append(job)
    return _profiled(cluster(nodes, jobs, time_s=float(rng.choice([70.0, 1e4]))), rng)


def _request(rng: np.random.Generator, nodes: int) -> Job:
    split, low = Split(int(rng.integers(1, 4))), int(rng.choice([1, 1, 2]))
    return Job(
        gpus=int(rng.integers(1, 5)) * low,
        split=split,
        min_nodes=low,
        max_nodes=low if split is Split.FIXED else low + 2,
        estimate_s=float(rng.choice([math.nan, 10.0, 20.0, 20.0, 500.0])),
        service_s=float(rng.choice([0.0, 5.0])),
        exclusive=rng.random() < 0.1,
        preemptible=rng.random() < 0.7,
        cpus_per_gpu=float(rng.choice([0.0, 0.0, 2.5])),
        nodes=frozenset({int(rng.integers(nodes))}) if rng.random() < 0.15 else None,
    )


def _profiled(state: ClusterState, rng: np.random.Generator) -> ClusterState:
    """Return the state with a model for most jobs: one that loses half of its speed on several nodes, or one that loses none."""
    unknown = np.full(2, math.nan)
    profiles = ProfileTable(
        models=("near", "anywhere"),
        of_job=rng.integers(-1, 2, len(state.jobs)),
        locality=np.array([[1.0, 1.0, 0.5, 0.4], [1.0, 1.0, 1.0, 1.0]]),
        bytes_per_step=unknown,
        compute_s=unknown,
        cpu_cores=unknown,
        pcie_gbyte_s=unknown,
        job_batch_per_gpu=rng.random(len(state.jobs)),
    )
    return replace(state, profiles=profiles)


@pytest.mark.parametrize("name", CONSIDERING_FIRST)
def test_a_decision_on_the_first_jobs_is_that_on_the_whole_queue(name: str) -> None:
    num_cut = 0
    for seed in range(150):
        state, policy = crowded(seed), load_policy(*parse_policy(name))
        cut = cut_queue(state, policy.spec)
        num_cut += cut.is_cut
        assert cut.restored(policy.decide(cut.considered)) == policy.decide(state), seed
    assert num_cut > 75


def test_the_others_consider_all_jobs() -> None:
    state = crowded(1)
    for name in CONSIDERING_ALL:
        assert cut_queue(state, load_policy(*parse_policy(name)).spec).considered is state, name


def test_every_installed_policy_that_considers_the_first_jobs_is_tested_here() -> None:
    specs, _ = installed_policies()
    assert {name for name, spec in specs.items() if spec.considers} <= {
        name.partition(":")[0] for name in CONSIDERING_FIRST
    }


def test_with_each_free_gpu_one_more_job_is_sent() -> None:
    jobs = [Job(gpus=4, occupied={0: 4}), *[Job()] * 9, Job(gpus=3, occupied={0: 3}, preemptible=False), *[Job()] * 9]
    state = cluster([Node(), Node(gpus=2), Node(available=False)], jobs)
    cut = cut_queue(state, PolicySpec("mine", "tests", considers=5))
    assert (len(cut.considered.pending), cut.considered.jobs.ids) == (8, (*map(str, range(100, 109)), "110"))
    preempting = cut_queue(state, PolicySpec("mine", "tests", considers=5, preempts=True))
    assert len(preempting.considered.pending) == 12


def test_rows_that_are_no_jobs_stay_so() -> None:
    state = cluster([Node(gpus=1)], [Job(1) for _ in range(9)])
    cut = cut_queue(state, PolicySpec("first", "", considers=2))
    sent, jobs = len(cut.considered.jobs), len(state.jobs)
    assert cut.is_cut
    wrong = Decision({sent: Placement((0,), (1,)), -1: Placement((0,), (1,))}, queue=(sent + 5,), reasons={sent: "why"})
    found = cut.restored(wrong)
    assert all(not 0 <= row < jobs for row in (*found.allocation, *found.reasons, found.queue[0]))


def test_a_queue_that_is_short_enough_is_sent_whole() -> None:
    state = cluster([Node(gpus=1)], [Job()] * 3)
    assert cut_queue(state, PolicySpec("mine", "tests", considers=2)).considered is state
    assert cut_queue(state, PolicySpec("mine", "tests", considers=1)).is_cut


def test_all_columns_are_those_of_the_jobs_that_are_sent() -> None:
    kept = [
        Job(gpus=2, occupied={0: 2}, servers=1, served_by={1: 1}, measured=(1.5, 0.5, 3.0)),
        Job(gpus=3, sizes=(1, 6), training=(20.0, 0.5), servers=2, estimate_s=9.0, nodes=frozenset({1})),
    ]
    late = Job(gpus=7, servers=3, exclusive=True, estimate_s=1.0, nodes=frozenset({0}))
    last = Job(gpus=6, occupied={0: 3, 1: 3}, servers=2, served_by={0: 1, 1: 1}, preemptible=False)
    nodes = [Node(gpus=5, foreign_gpus=0), Node(gpus=3)]
    state = cluster(nodes, [*kept, late, late, last])
    jobs = replace(
        state.jobs,
        slurm_priority=np.arange(5.0),
        partition_tier=np.arange(5),
        qos=np.array([0, 1, -1, -1, 2]),
        qos_names=("normal", "high", "low"),
        start_time_s=np.array([1.0, math.nan, math.nan, math.nan, 2.0]),
    )
    part = cut_queue(replace(state, jobs=jobs), PolicySpec("mine", "tests", considers=1)).considered
    wanted = cluster(nodes, [*kept, last])
    rows = [0, 1, 4]
    jobs = replace(
        wanted.jobs,
        ids=("100", "101", "104"),
        submit_time_s=np.array([0.0, 1.0, 4.0]),
        start_time_s=np.array([1.0, math.nan, 2.0]),
        slurm_priority=np.array([0.0, 1.0, 4.0]),
        partition_tier=np.array(rows),
        qos=np.array([0, 1, 2]),
        qos_names=("normal", "high", "low"),
        node_set=state.jobs.node_set[rows],
    )
    assert state_digest(part) == state_digest(replace(wanted, jobs=jobs, node_sets=state.node_sets))
    assert state_digest(parse_state(serialize_state(part))) == state_digest(part)
    assert part.jobs.estimate_source.tolist() == [EstimateSource.UNKNOWN, EstimateSource.TRUTH, EstimateSource.UNKNOWN]


class Recording(Fifo):
    """Decides as fifo does, and notes how many jobs it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs_sent: list[int] = []

    def decide(self, state: ClusterState) -> Decision:
        self.jobs_sent.append(len(state.jobs))
        return super().decide(state)


async def test_only_the_first_jobs_go_over_the_wire(tmp_path: Path) -> None:
    state = cluster([Node(gpus=4)], [Job(gpus=2, occupied={0: 2}), Job(gpus=1), *[Job(gpus=3)] * 500], sequence=7)
    policy, path = Recording(), tmp_path / "policy.sock"

    def decisions() -> list[Decision]:
        with closing(RemotePolicy(f"unix://{path}")) as remote:
            before = remote.decide(state)  # the server has not described its policy yet
            assert remote.spec.considers == 1
            return [before, remote.decide(state)]

    async with serving(policy, path):
        found = await asyncio.to_thread(decisions)
    assert policy.jobs_sent == [502, 4]
    assert found == [Fifo().decide(state)] * 2
    assert found[0].allocation[1] == Placement((0,), (1,))
