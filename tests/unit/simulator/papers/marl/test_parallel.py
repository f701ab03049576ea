"""MARL's environment by PettingZoo's own tests, and beside the world."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed: pip install 'headway-scheduler[train]'")

from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test

from simulator.papers.marl.parallel import MarlParallelEnv, aec_env, parallel_env
from simulator.papers.marl.rules.named import RULES
from simulator.papers.marl.rules.rule import play
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World

SMALL: dict[str, Any] = {"k": 4, "intervals": 2, "jobs_per_interval": 40.0}


@pytest.mark.parametrize("options", [{}, {"forwarding": "always"}, {"network": "bcube", "n": 2, "k": 3}])
def test_pettingzoo_finds_nothing(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel_env(**{**SMALL, **options}), num_cycles=200)
        parallel_seed_test(lambda: parallel_env(**{**SMALL, **options}), num_cycles=50)
        # Observations are dictionaries with masks, of which PettingZoo warns that it expects arrays.
        warnings.simplefilter("ignore")
        api_test(aec_env(**{**SMALL, **options}), num_cycles=200)


def played(env: MarlParallelEnv, rule: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Let a rule act for all agents; return the sums of their rewards, and the last info of one."""
    env.reset(seed=4)
    acts = RULES[rule]()
    acts.begin(env.world, 0)
    totals = dict.fromkeys(env.possible_agents, 0.0)
    info: dict[str, Any] = {}
    while env.agents:
        actions = {
            agent: acts.act(number) if env.world.head(number) is not None else env.layout.groups + number
            for number, agent in enumerate(env.possible_agents)
        }
        _, rewards, _, _, infos = env.step(actions)
        totals = {agent: totals[agent] + reward for agent, reward in rewards.items()}
        info = infos["scheduler_0"]
    return totals, info


def recorded(world: World) -> dict[int, list[tuple[int, Task, int]]]:
    """Return the decisions of each scheduler from now on, in their order: interval, task and action."""
    found: dict[int, list[tuple[int, Task, int]]] = {each: [] for each in range(world.center.schedulers)}
    act = world.act

    def record(scheduler: int, action: int) -> None:
        task = world.head(scheduler)
        assert task is not None
        found[scheduler].append((world.now, task, action))
        act(scheduler, action)

    world.act = record  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("rule", ["tetris", "lb", "contention-greedy"])
def test_agents_that_act_at_once_decide_as_those_that_act_in_turn(rule: str) -> None:
    # Nothing is forwarded, so a scheduler's decisions depend on its own partition alone, and not on the order of the schedulers.
    env = parallel_env(**SMALL, forwarding="never")
    at_once = recorded(env.world)
    totals, info = played(env, rule)
    world = World(env.options, env.world.center)
    in_turn = recorded(world)
    decisions = play(world, env.world.jobs, RULES[rule](), 0)

    assert at_once == in_turn
    assert sum(map(len, at_once.values())) == decisions > 50
    assert env.world.finish_s.tolist() == world.finish_s.tolist()
    assert info["outcome"]["avg_jct_s"] == pytest.approx(np.mean(world.finish_s - world.jobs.submit_s))
    of_each = np.bincount(env.world.jobs.scheduler, minlength=4)
    assert list(totals.values()) == pytest.approx(of_each.tolist())


def test_a_forwarded_job_rewards_the_scheduler_to_which_it_came() -> None:
    env = parallel_env(**{**SMALL, "jobs_per_interval": 120.0})
    totals, info = played(env, "contention-greedy")
    assert info["outcome"]["finished"] == len(env.world.jobs)
    assert info["outcome"]["forwarded"] > 0
    assert list(totals.values()) == pytest.approx(np.bincount(env.world.jobs.scheduler, minlength=4).tolist())


def test_an_agent_without_a_task_has_one_action() -> None:
    env = parallel_env(**SMALL)
    seen, _ = env.reset(seed=4)
    for number, agent in enumerate(env.agents):
        mask = seen[agent]["action_mask"]
        if env.world.head(number) is None:
            assert np.flatnonzero(mask).tolist() == [env.layout.groups + number]
        else:
            assert mask.any() and not mask[env.layout.groups + number]
