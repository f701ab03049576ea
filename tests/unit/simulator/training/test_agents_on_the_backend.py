"""The simulator validates and compares agents in environments beside policies."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from policies.api import load_policy
from policies.errors import TrainingError
from policies.learned.evaluation.evaluation import EvaluationRequest, evaluate
from policies.learned.training.agents import AgentInEnvironment, NetworkAgent, UniformAgent
from policies.learned.training.systems import SetupOverrides, TrainingSetup, WorkloadSpec, trained_agent
from simulator.agents.policy_agent import PolicyAgent
from simulator.training.backend import SimulatorBackend, simulator_backend

CONTENTION = "headway/Contention-v0"
SETUP = TrainingSetup(
    workloads=(WorkloadSpec("contention-rl", {"jobs": 24, "demands": (2, 4, 8)}),),
    cluster="4x8",
    slowdown=("pair-table",),
    validation_seeds=(500, 501),
)
BY_EVENTS = {"decide": "events"}


class Waiting:
    """An agent that only waits."""

    deviations = 0

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        pass

    def act(self, observation: Any, mask: object) -> int:
        return 0


@pytest.fixture
def backend() -> SimulatorBackend:
    return simulator_backend(SETUP, SetupOverrides())


def test_a_policy_that_acts_in_the_environment_has_its_own_validation_figures(backend: SimulatorBackend) -> None:
    fifo = load_policy("fifo")
    acting = AgentInEnvironment(PolicyAgent(fifo, exact=True), CONTENTION, BY_EVENTS)
    assert backend.validate(acting) == pytest.approx(backend.validate(fifo), rel=1e-9)
    uniform = backend.validate(AgentInEnvironment(UniformAgent(), CONTENTION, BY_EVENTS))
    assert uniform["avg_jct_s"] > backend.validate(fifo)["avg_jct_s"]


def test_a_trained_agent_is_compared_with_policies_on_the_same_traces(backend: SimulatorBackend) -> None:
    pytest.importorskip("torch")
    agent = trained_agent("agent", {"system": "contention-rl"})
    found = backend.compare(
        {"agent": agent, "rl-base": load_policy("rl-base", {"guard": False})}, 2, lambda _share: None
    )
    jct = {name: [row["avg_jct_s"] for row in rows] for name, rows in found.figures.items()}
    assert jct["agent"] == pytest.approx(jct["rl-base"], rel=1e-9)


def test_an_agent_that_leaves_jobs_waiting_is_refused(backend: SimulatorBackend) -> None:
    agent = AgentInEnvironment(Waiting(), CONTENTION, {"max_steps": 5})
    with pytest.raises(TrainingError, match="the agent in headway/Contention-v0 left 24 of 24 jobs"):
        backend.validate(agent)


def test_an_agent_for_another_cluster_is_refused(backend: SimulatorBackend) -> None:
    agent = AgentInEnvironment(NetworkAgent(lambda seen, _: seen, (2, 8)), CONTENTION)
    with pytest.raises(TrainingError, match=r"observations of shape \(2, 8\), and the environment's have \(4, 16\)"):
        backend.validate(agent)


def test_an_environment_without_jobs_is_refused(backend: SimulatorBackend) -> None:
    with pytest.raises(TrainingError, match=r"CartPole-v1.*traces"):
        backend.validate(AgentInEnvironment(UniformAgent(), "CartPole-v1"))


def test_agents_are_named_beside_policies() -> None:
    pytest.importorskip("torch")
    names = ("fewest-gpus", "agent:system=contention-rl")
    overrides = SetupOverrides()
    answer = evaluate(EvaluationRequest(policies=names, overrides=overrides, seeds=1), lambda _share: None)
    assert tuple(answer.figures) == names
    assert all(answer.unfinished[name] == 0 for name in names)
    with pytest.raises(TrainingError, match="does not name an agent"):
        evaluate(EvaluationRequest(policies=("agent:weights=x",), overrides=overrides), lambda _share: None)
