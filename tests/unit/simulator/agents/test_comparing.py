"""Agents and policies are compared on equal terms: equal seeds, traces and returns."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest

from policies.errors import PolicyError
from policies.learned.evaluation.statistics import Mean
from policies.learned.training.agents import UniformAgent
from simulator.agents.comparing import as_json, compare_agents
from simulator.agents.episodes import Episode
from simulator.agents.named import agent_of, env_options, named_agents
from simulator.agents.policy_agent import PolicyAgent
from simulator.errors import SettingError, SimulatorError

CONTENTION = "headway/Contention-v0"


def ignore(_share: float) -> None:
    pass


def figures(episode: Episode) -> dict[str, float]:
    """The figures that are defined, and the return."""
    return {"return": episode.total_reward} | {k: v for k, v in episode.outcome.items() if v == v}


def test_every_agent_gets_the_same_traces() -> None:
    options = env_options(["decide=events"], "contention-rl:jobs=16,demands=2/4")
    agents = {"one": agent_of("fifo"), "other": agent_of("fifo"), "uniform": UniformAgent()}
    found = compare_agents(CONTENTION, options, agents, range(1000, 1003), ignore)
    assert list(map(figures, found.episodes["one"])) == list(map(figures, found.episodes["other"]))
    assert found.change("other", "one") == Mean(0.0, 0.0)
    assert found.mean("uniform", "return") != found.mean("one", "return")
    values = [episode.outcome["avg_jct_s"] for episode in found.episodes["one"]]
    assert found.mean("one", "avg_jct_s") == Mean.of(values)
    assert len(set(values)) == 3


def test_an_environment_without_jobs_is_compared_by_return() -> None:
    class Left:
        deviations = 0

        def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
            pass

        def act(self, observation: Any, mask: object) -> int:
            return 0

    found = compare_agents("CartPole-v1", {}, {"left": Left(), "uniform": UniformAgent()}, range(6), ignore)
    left, uniform = found.mean("left", "return"), found.mean("uniform", "return")
    assert left is not None and uniform is not None and left.mean < 11 < uniform.mean
    assert found.mean("left", "avg_jct_s") is None
    json.dumps(as_json(found), allow_nan=False)
    with pytest.raises(SimulatorError, match="policies cannot act in CartPole-v1"):
        compare_agents("CartPole-v1", {}, {"fifo": agent_of("fifo")}, [0], ignore)


def test_an_episode_that_was_cut_off_has_a_return_and_no_figures_of_jobs() -> None:
    options = env_options(["max_steps=3"], "contention-rl:jobs=16,demands=2/4")
    found = compare_agents(CONTENTION, options, {"fifo": agent_of("fifo")}, [1, 2], ignore)
    assert found.truncated("fifo") == 2
    assert found.mean("fifo", "avg_jct_s") is None
    assert found.mean("fifo", "return") is not None


def test_the_shipped_agent_acts_in_the_environment_as_its_policy_does() -> None:
    pytest.importorskip("torch")
    named = named_agents(["agent:system=contention-rl", "rl-base:guard=false"], None, {})
    options = {**named.options, **env_options([], "contention-rl:jobs=24,demands=2/4/8")}
    found = compare_agents(named.env, options, named.agents, range(1000, 1002), ignore)
    agent, policy = found.episodes["agent:system=contention-rl"], found.episodes["rl-base:guard=false"]
    assert list(map(figures, agent)) == list(map(figures, policy))
    assert all(each.deviations == 0 for each in policy)


def test_the_shipped_agent_of_sched2_acts_as_its_policy_does() -> None:
    pytest.importorskip("torch")
    named = named_agents(["agent:system=sched2", "sched2:guard=false"], None, {})
    options = {**named.options, **env_options(["cluster=15x8"], "sched2:jobs=60")}
    found = compare_agents(named.env, options, named.agents, [1000], ignore)
    agent, policy = found.episodes.values()
    assert [each.outcome["avg_jct_s"] for each in agent] == [each.outcome["avg_jct_s"] for each in policy]


@pytest.mark.parametrize(
    ("texts", "env", "options", "wrong"),
    [
        (["fifo", "fifo"], CONTENTION, {}, "fifo is given twice"),
        (["fifo"], None, {}, "no environment is given; give --env"),
        (["agent:weights=x"], None, {}, "does not name an agent"),
        (["agent:system=headway-rl"], None, {}, "headway-rl has no agent that acts in an environment"),
        (["agent:system=nothing"], None, {}, "no system is named 'nothing'"),
        (["agent:system=sched2"], CONTENTION, {}, "was trained in headway/Sched2-v0, and the environment is"),
        (["agent:system=sched2"], None, {"candidates": 5}, "candidates=10, and the environment has 5"),
    ],
)
def test_wrong_agents_are_refused(texts: list[str], env: str | None, options: dict[str, Any], wrong: str) -> None:
    with pytest.raises((SettingError, PolicyError), match=wrong):
        named_agents(texts, env, options)


def test_a_policy_is_an_agent() -> None:
    assert isinstance(agent_of("random:seed=3"), PolicyAgent)
