"""The served policy: it acts as in the environment, gives equal decisions every time, and refuses clusters with a clear message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from policies.api import Policy
from policies.errors import EncoderError, WeightsError
from policies.learned.sched2.encoder import NAME, Encoding, settings
from policies.learned.sched2.policy import SYSTEM, QAgent, Sched2
from policies.learned.weights import weights
from policies.learned.weights.card import draft
from policies.model import ClusterState
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.sched2.env import Sched2Env
from simulator.results.result import Result
from simulator.slowdown.registry import build
from tests.unit.policies.learned.sched2.agents import FEW, SMALL, agent_of, network_of, small_recipe
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check_node, check_shape


def simulated(env: Sched2Env, policy: Policy) -> Simulation:
    models = build(["locality"], topology=env.cluster.topology, profiles=env.options.profiles)
    run = Simulation(env.trace, env.cluster, policy, Settings(), models, env.options.profiles)
    run.run()
    return run


@pytest.mark.parametrize("seed", range(4))
def test_the_policy_acts_as_the_network_does_in_the_environment(seed: int) -> None:
    env, network = Sched2Env(traces=FEW, cluster="4x4", candidates=4), network_of(SMALL, seed)
    seen, _ = env.reset(seed=seed)
    run, over = simulated(env, Sched2(QAgent(SMALL, network))), False
    while not over:
        with torch.inference_mode():
            worth = network(torch.from_numpy(seen[None]), torch.from_numpy(env.action_masks()[None]))
        seen, _, over, _, _ = env.step(np.int64(worth.argmax()))
    played, served = Result.of(env.simulation, "agent", 0.0), Result.of(run, "sched2", 0.0)
    assert served.done.all()
    assert served.finish_ns.tolist() == played.finish_ns.tolist()
    assert served.nodes() == played.nodes()
    again = Result.of(simulated(env, Sched2(QAgent(SMALL, network))), "sched2", 0.0)
    assert again.finish_ns.tolist() == served.finish_ns.tolist()


def saved(folder: Path, encoding: Encoding = SMALL, **card: Any) -> Path:
    network = network_of(encoding)
    recipe = small_recipe()
    made = draft(
        system=SYSTEM, recipe=settings(encoding, recipe), seed=1, encoder=NAME, shapes=(encoding.supports,), data="none",
        data_sha256="0" * 64,
    )  # fmt: skip
    weights.save(folder, SYSTEM, network.state_dict(), replace(made, **card))
    return folder


def busy() -> ClusterState:
    jobs = [
        Job(gpus=3, occupied={0: 3}, estimate_s=7200),
        *(Job(gpus=gpus, estimate_s=600.0 * gpus) for gpus in (1, 4, 2, 3, 1, 2, 1)),
    ]
    return cluster([Node(gpus=4)] * 4, jobs)


def test_weights_come_back_as_the_policy_that_was_saved(tmp_path: Path) -> None:
    path = saved(tmp_path)
    there, here = Sched2(str(path), guard=False).decide(busy()), Sched2(agent_of(SMALL)).decide(busy())
    assert there == here
    assert there.reasons and set(there.reasons) <= set(range(8))


def test_weights_of_a_version_with_one_network_are_served(tmp_path: Path) -> None:
    """Their card has no field `network`, and fields of the search that trained them then."""
    known = ("gaps_s", "window", "candidates", "reward", "hidden", "server", "num_nodes", "gpus_per_node", "usual_h")
    recipe = {name: value for name, value in settings(SMALL, small_recipe()).items() if name in known}
    older = {"worth": 0.005, "searches": 60, "unit": 0.001, "follow": 0.005, "max_gradient": 10.0}
    path = saved(tmp_path, recipe={**recipe, **older})
    assert Sched2(str(path), guard=False).decide(busy()) == Sched2(agent_of(SMALL)).decide(busy())


def test_the_window_can_be_another_than_that_of_training(tmp_path: Path) -> None:
    path = str(saved(tmp_path))
    jobs = [
        Job(gpus=3, occupied={0: 3}, estimate_s=600),
        *(Job(gpus=2, estimate_s=7200.0) for _ in range(6)),
        Job(gpus=1, estimate_s=60),
    ]
    state = cluster([Node(gpus=4)] * 4, jobs)
    agents = [Sched2(path)._agent, Sched2(path, window="first")._agent, Sched2(path, window="widest")._agent]
    assert [list(agent.encoder.observe(state).candidates) for agent in agents] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4],
        [7, 1, 2, 3],
    ]
    with pytest.raises(EncoderError, match="window is 'other'; give first or widest"):
        Sched2(path, window="other")


def test_damaged_and_foreign_weights_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    file = path / f"{SYSTEM}.safetensors"
    whole = file.read_bytes()
    for content, says in (
        (whole[:-9], "cut short"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "SHA-256"),
        (b"", "cut short"),
    ):
        file.write_bytes(content)
        with pytest.raises(WeightsError, match=says):
            Sched2(str(path))
    file.unlink()
    with pytest.raises(WeightsError, match="no such file"):
        Sched2(str(path))
    with pytest.raises(WeightsError, match="weights of other, not of sched2"):
        Sched2(str(saved(tmp_path, system="other")))
    with pytest.raises(WeightsError, match="made for encoder sched2/0, this Headway has"):
        Sched2(str(saved(tmp_path, encoder="sched2/0")))
    kept = {name: value for name, value in settings(SMALL, small_recipe()).items() if name != "num_nodes"}
    with pytest.raises(WeightsError, match="its recipe does not describe a network"):
        Sched2(str(saved(tmp_path, recipe=kept)))
    with pytest.raises(WeightsError, match="the network has"):
        Sched2(str(saved(tmp_path, recipe={**settings(SMALL, small_recipe()), "hidden": 9})))


def test_an_unsuitable_cluster_is_refused() -> None:
    with pytest.raises(EncoderError, match="trained for 4 nodes, the widest of 4 GPUs, and the cluster has 2 nodes"):
        Sched2(agent_of(SMALL)).decide(cluster([Node(gpus=4)] * 2, []))


def test_without_a_finite_value_the_oldest_job_starts_and_the_reason_says_so() -> None:
    network = network_of(SMALL)
    with torch.no_grad():
        network.get_parameter("value.0.bias").fill_(float("nan"))
    decision = Sched2(QAgent(SMALL, network)).decide(busy())
    started = [row for row in decision.allocation if row != 0]
    assert started == [1, 2, 3, 4, 5, 6]
    assert all("is not finite" in decision.reasons[row] for row in started[:-1])


def test_a_deferred_job_has_a_reason() -> None:
    network = network_of(SMALL)
    with torch.no_grad():
        network.get_parameter("void.2.bias").fill_(1e4)
    decision = Sched2(QAgent(SMALL, network)).decide(busy())
    assert set(decision.allocation) == {0}
    assert decision.reasons == dict.fromkeys(range(1, 5), "deferred: the policy prefers to keep 13 GPUs free for now")
    # While nothing runs the agent may not wait, so one job starts. Then it may.
    alone = Sched2(QAgent(SMALL, network)).decide(cluster([Node(gpus=4)] * 4, [Job(gpus=1), Job(gpus=2)]))
    assert len(alone.allocation) == 1


def test_more_jobs_than_slots_and_no_jobs_at_all() -> None:
    policy = Sched2(agent_of(SMALL))
    assert policy.decide(cluster([Node(gpus=4)] * 4, [])).allocation == {}
    many = policy.decide(cluster([Node(gpus=4)] * 4, [Job(gpus=1, estimate_s=60.0 * row) for row in range(200)]))
    assert 0 < len(many.allocation) <= 16
    assert many.queue == tuple(range(200))


@hypothesis_settings(max_examples=40, deadline=None)
@given(state=states())
def test_no_job_is_placed_badly_on_any_cluster(state: ClusterState) -> None:
    widest = int(state.nodes.gpus.max())
    if widest == 0:
        return
    encoding = Encoding(num_nodes=len(state.nodes), gpus_per_node=widest, candidates=4)
    decision = Sched2(agent_of(encoding)).decide(state)
    started = {row: placement for row, placement in decision.allocation.items() if row not in state.running}
    for row, placement in started.items():
        check_shape(state, row, placement)
    for node in {node for placement in started.values() for node in placement.nodes}:
        check_node(state, decision, started, node)
