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


def test_agents_that_act_at_once_play_the_world() -> None:
    env = parallel_env(**SMALL)
    totals, info = played(env, "contention-greedy")
    world = World(env.options, env.world.center)
    play(world, env.world.jobs, RULES["contention-greedy"](), 0)
    assert info["outcome"]["avg_jct_s"] == pytest.approx(np.mean(world.finish_s - world.jobs.submit_s), rel=0.2)
    of_each = np.bincount(env.world.jobs.scheduler, minlength=4)
    assert list(totals.values()) == pytest.approx(of_each.tolist())


def test_an_agent_without_a_task_has_one_action() -> None:
    env = parallel_env(**SMALL)
    seen, _ = env.reset(seed=4)
    for number, agent in enumerate(env.agents):
        mask = seen[agent]["action_mask"]
        if env.world.head(number) is None:
            assert np.flatnonzero(mask).tolist() == [env.layout.groups + number]
        else:
            assert mask.any() and not mask[env.layout.groups + number]
