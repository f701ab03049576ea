"""GPUs that learned policies choose, beside an embedded Slurm: each job gets those that the decision names, run after run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from controller.slurm.embedded import ClusterDescription, NodeDescription, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from policies.api import Decision, Policy
from policies.learned.marl.policy import Marl
from policies.learned.marl.serving.batch import Batch
from policies.learned.rl_taps.cluster_image import slots_of
from policies.learned.rl_taps.policy import RlTaps
from policies.model import ClusterState
from policies.placement.wished_gpus import Wish
from policies.state.gpu_layout import GpuLayout, gpus_text
from tests.unit.controller.cycle.decision.test_policy_resizes import AUTOMATIC, ELASTIC, Served
from tests.unit.controller.worlds.world import World

PAIRS = GpuLayout((0, 0, 1, 1), (0, 0, 1, 1), (0,) * 4)
CROSSED = GpuLayout((0, 1) * 4, (0, 1) * 4, (0,) * 8)
"""Two sockets; neighbours by number are below different ones."""


class Chooses(RlTaps):
    """RL-TAPS with an agent that gives each job the GPUs of a list, numbered node by node."""

    def __init__(self) -> None:
        super().__init__(round_s=10.0, guard=False, gpus="named")
        self.gpus: dict[str, list[int]] = {}

    def decide(self, state: ClusterState) -> Decision:
        """Let the network say what the list says."""
        action = np.zeros(32, dtype=np.int64)
        for slot, row in enumerate(slots_of(state, 10)):
            action[self.gpus.get(state.jobs.ids[row], []) if row >= 0 else []] = slot + 1
        logits = torch.nn.functional.one_hot(torch.from_numpy(action), 11).float()[None]
        self._network.logits = lambda _images: logits  # type: ignore[method-assign]
        return super().decide(state)


class Noting(Served):
    """A server that remembers the GPUs which its decisions name."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.named: dict[str, dict[str, str]] = {}
        """Job id → node → GPUs, as they were named last."""

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        """Let the policy decide."""
        decision: Decision = await super().decide(state, deadline_s)
        for row, placement in decision.allocation.items():
            masks = zip(placement.nodes, placement.gpu_masks, strict=False)
            if found := {state.nodes.names[node]: gpus_text(mask) for node, mask in masks}:
                self.named[state.jobs.ids[row]] = found
        return decision


def world_of(folder: Path, policy: Policy, nodes: NodeDescription, layout: GpuLayout) -> World:
    description = ClusterDescription(nodes=(nodes,))
    world = World(folder, description, endpoint=Noting(policy), settings_changes=AUTOMATIC)
    world.knowledge.set_gpu_layouts({f"n{number}": layout for number in range(1, 9)})
    return world


def held(world: World, key: JobKey) -> dict[str, str]:
    """Node → indices of the GPUs that the job holds, by Slurm's own record."""
    return {share.node: gpus_text(share.gpu_mask) for share in world.slurm.job(key.job_id).allocated}


def elastic(world: World, gpus: int) -> JobKey:
    request = sbatch_request(gpus=gpus, ntasks=gpus)
    return world.sbatch(5000.0, request=request, comment=ELASTIC, traps=frozenset({"USR1"}))


async def foreign(world: World, gpus: int) -> JobKey:
    """Submit a job that Slurm itself starts, because the controller is away."""
    world.alive = False
    key = world.sbatch(5000.0, gpus_per_node=gpus, batch=False)
    await world.clock.advance(2.0)
    world.alive = True
    return key


async def test_jobs_get_the_gpus_that_the_agent_of_rl_taps_chose_in_each_of_their_runs(tmp_path: Path) -> None:
    agent = Chooses()
    world = world_of(tmp_path, agent, NodeDescription(names="n[1-8]", gpus=4), PAIRS)
    # given three elastic jobs, one of which is divided between two nodes, in other sizes than they ask for
    keys = first, second, third = [elastic(world, 4) for _ in range(3)]
    agent.gpus = {first.job_id: [3], second.job_id: [6, 7, 10, 11], third.job_id: [13]}
    await world.go_on(3)
    assert [held(world, key) for key in keys] == [{"n1": "3"}, {"n2": "2-3", "n3": "2-3"}, {"n4": "1"}]
    assert world.ledger.pins[second].reason.endswith("Slurm was told to give it GPUs 2-3 of n2, GPUs 2-3 of n3")
    # when the agent shrinks one and lets another grow onto GPUs that this one leaves
    agent.gpus |= {second.job_id: [7], third.job_id: [10, 11]}
    await world.go_on(30)
    for key in (second, third):
        assert world.preemptions.open[int(key.job_id)]
        world.slurm.requeue(key.job_id)
    await world.go_on(30)
    # then they have the new GPUs, and the one that stayed has the same
    assert [held(world, key) for key in keys] == [{"n1": "3"}, {"n2": "3"}, {"n3": "2-3"}]
    # and when its node has failed, the next run has the GPUs that the agent gives it then
    agent.gpus[first.job_id] = [29]
    world.slurm.node_down("n1")
    await world.go_on(200)
    assert world.phase(first) is Phase.RUNNING
    assert [held(world, key) for key in keys] == [{"n8": "1"}, {"n2": "3"}, {"n3": "2-3"}]
    assert world.endpoint.named == {key.job_id: held(world, key) for key in keys}


@pytest.mark.parametrize("told", [True, False])
async def test_a_job_waits_for_the_gpus_of_one_that_stops_only_if_slurm_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    agent = Chooses()
    world = world_of(tmp_path, agent, NodeDescription(names="n[1-8]", gpus=4), PAIRS)
    monkeypatch.setattr(world.slurm.client, "can_bind_gpus", lambda _pin: told)
    first, second = [elastic(world, 2) for _ in range(2)]
    agent.gpus = {first.job_id: [0, 1]}
    await world.go_on(30)
    # when the agent gives a waiting job the GPUs of one that is stopped for another size, and two others of the node are free
    agent.gpus = {first.job_id: [4], second.job_id: [0, 1]}
    await world.go_on(15)
    # then it starts on the free ones, unless Slurm can be told which it gets
    assert world.phase(first) is Phase.RUNNING
    assert world.phase(second) is (Phase.PENDING if told else Phase.RUNNING)


async def test_gpus_of_a_foreign_job_stay_its_own_and_rl_taps_takes_others(tmp_path: Path) -> None:
    agent = Chooses()
    world = world_of(tmp_path, agent, NodeDescription(names="n[1-8]", gpus=4), PAIRS)
    other = await foreign(world, 1)
    keys = [elastic(world, 2) for _ in range(2)]
    agent.gpus = {keys[0].job_id: [0, 1], keys[1].job_id: [2]}
    await world.go_on(3)
    # the second job has what the agent gave it, and the first one of its GPUs and one that is free
    assert [held(world, key) for key in (other, *keys)] == [{"n1": "0"}, {"n1": "1,3"}, {"n1": "2"}]
    assert "not all of its GPUs are those that the agent chose" in world.ledger.pins[keys[0]].reason
    assert "not all" not in world.ledger.pins[keys[1]].reason


async def test_where_slurm_cannot_be_told_the_choice_of_rl_taps_is_advice(tmp_path: Path) -> None:
    agent = Chooses()
    world = world_of(tmp_path, agent, NodeDescription(names="n[1-8]", gpus=4), PAIRS)
    world.slurm.client.can_bind_gpus = lambda pin: False  # type: ignore[method-assign]
    key = elastic(world, 1)
    agent.gpus = {key.job_id: [3]}
    await world.go_on(3)
    assert held(world, key) == {"n1": "0"}
    assert world.ledger.pins[key].reason.endswith("GPU 3 of n1 was chosen; Slurm cannot be told which")
    # the agent sees the GPU that the job has
    assert slots_of((await world.turn()).observation.state, 10)[0] == 0


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, Wish]]]:
    """Job id → node → (GPUs of a group, workers there), as MARL's agents chose last."""
    found: dict[str, dict[str, Wish]] = {}
    wish = Batch.wish

    def noting(self: Batch, row: int) -> dict[int, Wish]:
        state: Any = self._state
        answer = wish(self, row)
        found[state.jobs.ids[row]] = {state.nodes.names[node]: each for node, each in answer.items()}
        return answer

    monkeypatch.setattr(Batch, "wish", noting)
    yield found


async def test_jobs_get_gpus_of_the_sockets_that_the_agents_of_marl_chose(
    tmp_path: Path, chosen: dict[str, dict[str, Wish]]
) -> None:
    policy = Marl(guard=False, groups="sockets")
    world = world_of(tmp_path, policy, NodeDescription(names="n[1-4]", gpus=8), CROSSED)
    # given a foreign job, which has GPUs on both sockets of a node
    other = await foreign(world, 3)
    assert held(world, other) == {"n1": "0-2"}
    # when jobs of several shapes start one after the other, one fails with its node and runs again, and the controller restarts
    keys = []
    for gpus, nodes in ((1, 1), (2, 1), (3, 1), (2, 2), (1, 1), (5, 1)):
        keys.append(world.sbatch(5000.0, gpus_per_node=gpus, nodes=nodes))
        await world.go_on(3)
    fails = next(iter(held(world, keys[1])))
    world.slurm.node_down(fails)
    await world.go_on(200)
    world.restart()
    world.knowledge.set_gpu_layouts({f"n{number}": CROSSED for number in range(1, 5)})
    keys.append(world.sbatch(5000.0, gpus_per_node=2))
    await world.go_on(5)
    # then all run on the GPUs that were named, as many on each socket as the agents chose
    assert world.slurm.job(keys[1].job_id).restarts == 1
    running = [key for key in keys if world.phase(key) is Phase.RUNNING]
    assert keys[1] in running and len(running) >= 5
    for key in running:
        assert held(world, key) == world.endpoint.named[key.job_id]
        for share in world.slurm.job(key.job_id).allocated:
            groups = chosen[key.job_id][share.node]
            assert sum(number for _, number in groups) == share.gpus
            assert [(share.gpu_mask & mask).bit_count() for mask, _ in groups] == [number for _, number in groups]
