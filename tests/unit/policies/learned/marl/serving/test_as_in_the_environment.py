"""The policy on a cluster decides as the environment's agent does in the same state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.learned.marl.policy import Marl
from policies.learned.marl.serving.job_columns import MODELS, STEPS
from policies.learned.marl.system import agent
from policies.model import ClusterState, Placement, ProfileTable
from simulator.cluster.topology import rack_tree
from simulator.papers.marl import env as environment
from simulator.papers.marl.state.data_center import DataCenter
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.world import World
from simulator.slowdown.profiles.papers import MARL
from simulator.traces.generators import dl2
from simulator.traces.generators.marl import Marl as Workload
from simulator.traces.generators.marl import generate
from simulator.traces.trace import NS_PER_S
from tests.unit.policies.states.cluster import Job, Node, cluster

NIC_GBS, UPLINK_GBS = 1.25, 2.0


def center_of(racks: int, nodes: int, groups: int) -> DataCenter:
    """Racks with a scheduler each, and servers of so many groups with two GPUs and eight cores."""
    count = racks * nodes
    place = [node // nodes for node in range(count)]
    topology = rack_tree([2 * groups] * count, [groups] * count, place, nic_gbs=NIC_GBS, uplink_gbs=UPLINK_GBS)
    servers = np.repeat(np.arange(count), groups)
    return DataCenter(topology, np.full(count * groups, 2), np.full(count * groups, 8.0), servers, racks, racks)


def state_of(world: World) -> ClusterState:
    """The jobs that run, and those whose tasks wait for a decision, as a cluster has them."""
    center, jobs = world.center, world.jobs
    rows = sorted(world.running | _queued(world))
    made = [_job(world, row, runs=row in world.running) for row in rows]
    groups = center.num_groups // center.topology.num_nodes
    state = cluster([Node(gpus=2 * groups, cpus=16 * groups)] * center.topology.num_nodes, made)
    count = len(state.nodes)
    nodes = replace(
        state.nodes, rack=np.array(center.topology.racks), nic_gbyte_s=np.full(count, NIC_GBS),
        uplink_gbyte_s=np.full(count, UPLINK_GBS), pcie_gbyte_s=np.full(count, 16.0),
    )  # fmt: skip
    ids = tuple(str(row * center.schedulers + int(jobs.scheduler[row])) for row in rows)
    profiles = [MARL[model] for model in jobs.models]
    columns = {
        name: np.array([getattr(each, field) for each in profiles])
        for name, field in (("compute_s", "compute_s"), ("bytes_per_step", "bytes"), ("cpu_cores", "cpu"))
    }
    pcie = np.array([each.pcie * 16.0 for each in profiles])
    table = ProfileTable(jobs.models, jobs.model[rows], np.zeros((len(profiles), 4)), pcie_gbyte_s=pcie, **columns)
    return replace(state, nodes=nodes, jobs=replace(state.jobs, ids=ids, **_gpus(world, rows)), profiles=table)


def _job(world: World, row: int, *, runs: bool) -> Job:
    jobs = world.jobs
    servers = int(jobs.servers[row])
    if not runs:
        return Job(gpus=int(jobs.workers[row]), cpus_per_gpu=6.0, servers=servers)
    workers, there = world.placed.servers_of(row)
    return Job(gpus=int(jobs.workers[row]), cpus_per_gpu=6.0, occupied=workers, servers=servers, served_by=there)


def _gpus(world: World, rows: list[int]) -> dict[str, Any]:
    """Return the numbers of the GPUs that running jobs have: two for each group, in the order of jobs."""
    free = {group: [2 * (group % (world.center.num_groups // world.center.topology.num_nodes)) + at for at in range(2)]
            for group in range(world.center.num_groups)}  # fmt: skip
    masks: list[int] = []
    for row in rows:
        of_node: Counter[int] = Counter()
        for group, is_worker in zip(world.placed.group[row].tolist(), world.jobs.is_worker[row], strict=True):
            if row in world.running and group != NOWHERE and is_worker:
                of_node[int(world.center.group_server[group])] |= 1 << free[group].pop(0)
        masks += [of_node[node] for node in sorted(of_node)]
    return {"placement_gpu_mask": np.array(masks, dtype=np.uint64)}


def placement_of(world: World, row: int) -> Placement:
    workers, servers = world.placed.servers_of(row)
    return Placement.of(workers, servers)


def intervals(center: DataCenter, monkeypatch: pytest.MonkeyPatch, jobs: int, gap_s: float) -> Iterator[World]:
    """Yield the world when a batch begins; the environment's agent decides on it behind that."""
    monkeypatch.setattr(environment, "data_center", lambda _options: center)
    trace = generate(Workload(jobs=jobs, mean_gap_s=gap_s, arrivals="poisson", schedulers=center.schedulers, seed=900))
    env = environment.MarlEnv(traces=[replace(trace, submit_ns=trace.submit_ns + NS_PER_S)], shows="types")
    served = agent("").agent
    env.reset(seed=1)
    served.begin(env, 0)
    while not env.world.is_over:
        yield env.world
        env.turn = 0
        while env._find_turn():
            action = served.act(env._observe(), env.action_masks())
            env.world.act(env.turn, int(action))
        yield env.world
        while env.world.queues.is_empty and not env.world.is_over:
            env.world.advance()


def test_models_and_their_steps_are_those_of_the_training() -> None:
    assert MODELS == dl2.MODELS
    assert tuple((MARL[name].compute_s, MARL[name].bytes) for name in MODELS) == STEPS


def test_a_batch_is_placed_as_by_the_environments_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With parameter servers, on servers of one GPU group; as partitions fill, tasks are forwarded."""
    policy, equal, forwarded = Marl(guard=False), 0, 0
    worlds = intervals(center_of(3, 4, 1), monkeypatch, 16, 900.0)
    for before in worlds:
        put_off, forwards = before.put_off, before.forwarded
        found = decided(policy, before)
        after = next(worlds)
        if (
            after.put_off == put_off
        ):  # else a job that cannot be placed whole holds GPUs for a while, which the policy avoids
            assert found == {row: placement_of(after, row) if row in after.running else None for row in found}
            equal, forwarded = equal + len(found), forwarded + after.forwarded - forwards
        elif forwarded:
            break
    assert equal >= 12 and forwarded


def test_with_two_groups_on_a_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an empty cluster: a cluster does not say on which group of a node the parameter servers of running jobs are. Racks of one
    node each, because equal nodes of a rack have equal scores, and rounding decides."""
    worlds = intervals(center_of(4, 1, 2), monkeypatch, 5, 1.0)
    found = decided(Marl(guard=False, groups=2), next(worlds))
    after = next(worlds)
    assert found == {row: placement_of(after, row) if row in after.running else None for row in found}
    assert sum(placement is not None for placement in found.values()) == 4


def decided(policy: Marl, world: World) -> dict[int, Placement | None]:
    """Return where the policy places each job whose tasks wait; None: it waits."""
    state = state_of(world)
    rows = sorted(world.running | _queued(world))
    allocation = policy.decide(state).allocation
    return {rows[row]: allocation.get(row) for row in state.pending.tolist()}


def _queued(world: World) -> set[int]:
    return {task.job for scheduler in range(world.center.schedulers) for task in world.queues._of[scheduler]}
