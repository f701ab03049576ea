"""Baselines and controls: their choices by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from policies.learned.training.agents import Agent
from simulator.agents.episodes import play
from simulator.envs import baseline_class, baselines
from simulator.errors import SettingError
from simulator.papers.rl_taps.env import RlTapsEnv
from simulator.papers.rl_taps.rules.agent import RlTapsAgent
from simulator.papers.rl_taps.rules.baselines import Random, ShortestJobFirst, Tetris
from simulator.papers.rl_taps.rules.best_fit import BestFit
from simulator.papers.rl_taps.rules.greedy import Greedy
from simulator.papers.rl_taps.rules.nearest import nearest
from simulator.traces.generators.rl_taps import RLTaps
from simulator.traces.trace import Trace
from tests.unit.simulator.papers.rl_taps.test_batch import STEP_S, sequence
from tests.unit.simulator.papers.rl_taps.test_speeds import LINKS


def begun(agent: RlTapsAgent, trace: Trace, **options: Any) -> RlTapsEnv:
    env = RlTapsEnv(traces=[trace], step_s=STEP_S, **options)
    env.reset(seed=0)
    agent.begin(env, 0)
    return env


def given(action: Any) -> dict[int, list[int]]:
    """Return the GPUs of each slot, from 1 on."""
    return {int(slot): np.flatnonzero(action == slot).tolist() for slot in np.unique(action) if slot}


def free(*gpus: int) -> Any:
    return np.isin(np.arange(32), gpus)


@pytest.mark.parametrize(
    ("gpus", "count", "expected"),
    [
        ((0, 1, 2, 4, 5), 1, [2]),  # the socket with the fewest free GPUs
        ((0, 1, 2, 4, 5), 2, [0, 1]),  # the first of two sockets with two
        ((0, 1, 2, 4, 5), 3, [0, 1, 2]),
        ((0, 2, 4, 5), 2, [4, 5]),  # a socket rather than a node
        ((0, 2, 4, 9, 10, 12), 3, [0, 2, 4]),  # the first of two racks with three
        ((1, 8, 9, 10, 12, 17), 5, [1, 8, 9, 10, 12]),  # a rack whole, and one more
        (tuple(range(32)), 12, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ],
)
def test_gpus_near_each_other(gpus: tuple[int, ...], count: int, expected: list[int]) -> None:
    assert nearest(LINKS, free(*gpus), count).tolist() == expected


def test_more_gpus_than_are_free() -> None:
    with pytest.raises(ValueError, match="3 GPUs of 2"):
        nearest(LINKS, free(1, 2), 3)


JOBS = sequence((0, 12, 3), (0, 3, 1), (0, 9, 2), (0, 12, 9))


@pytest.mark.parametrize("preemption", ["never", "full"])
def test_baselines_pick_and_take_the_first_free_gpus(preemption: str) -> None:
    for agent, order in ((ShortestJobFirst(), (2, 3, 1)), (Tetris(), (1, 4, 2))):
        env = begun(agent, JOBS, preemption=preemption)
        gpus, first = {1: 12, 2: 3, 3: 9, 4: 12}, 0
        found = given(agent.act(None, None))
        for slot in order:
            assert found.pop(slot) == list(range(first, first + gpus[slot]))
            first += gpus[slot]
        assert not found
        env.step(agent.act(None, None))
        held = env.batch.owner[0].copy()
        env.step(agent.act(None, None))
        running = env.batch.owner[0] >= 0
        # No job ends or moves in the second step.
        assert (env.batch.owner[0] == held)[running].all()
        assert env.batch.stops[0] == 0


def test_the_random_baseline_picks_each_job_that_fits() -> None:
    agent = Random(seed=1)
    begun(agent, JOBS, preemption="never")
    firsts = {int(agent.act(None, None)[0]) for _ in range(60)}
    assert firsts == {1, 2, 3, 4}


def test_best_fit_takes_the_shortest_remaining_time_and_keeps_places() -> None:
    agent = BestFit()
    env = begun(agent, JOBS)
    found = given(agent.act(None, None))
    # The shortest first, in a machine each; the job of 9 steps gets what is left.
    assert {slot: len(gpus) for slot, gpus in found.items()} == {2: 3, 3: 9, 1: 12, 4: 8}
    assert found[2] == [0, 1, 2]
    assert len({gpu // 8 for gpu in found[3]}) == 2
    env.step(agent.act(None, None))
    env.step(agent.act(None, None))
    assert env.batch.stops[0] == 0
    without = BestFit(fill=False)
    without.begin(env, 0)
    assert {slot: len(gpus) for slot, gpus in given(without.act(None, None)).items()} == {2: 3, 3: 9, 1: 12}


def test_greedy_gives_jobs_with_long_reductions_one_gpu() -> None:
    agent = Greedy()
    env = begun(agent, sequence((0, 12, 3), (0, 12, 3)))
    found = given(agent.act(None, None))
    # vgg-vd-19 with 32 examples: one GPU 0.9, eight of a rack 0.96; with the rest of the cluster a job reaches 1.34.
    rates = env.batch.speeds.rates(agent.slots_of_gpus()[None], env.batch.of.reduction[:, env.batch.slots[0]])
    assert rates.speed[0, :2].sum() >= 0.9 + 0.9
    assert set(found) == {1, 2}


def test_greedy_is_better_than_best_fit_and_that_better_than_the_baselines() -> None:
    means = {}
    for agent, preemption in ((ShortestJobFirst(), "never"), (BestFit(), "full"), (Greedy(), "full")):
        env = RlTapsEnv(traces=RLTaps(jobs=40), preemption=preemption, max_steps=200)
        means[type(agent).__name__] = play(env, agent, 1).outcome["mean_slowdown"]
    assert means["Greedy"] < means["BestFit"] < means["ShortestJobFirst"]


@pytest.mark.parametrize("name", [name for name, env in baselines().items() if env == "headway/RlTaps-v0"])
def test_rules_act_by_their_names_and_refuse_other_environments(name: str) -> None:
    agent: Agent = baseline_class(name)()
    env = RlTapsEnv(traces=RLTaps(jobs=5))
    one, two = (play(env, agent, 3) for _ in range(2))
    assert one == two
    assert one.outcome["finished"] == 5
    with pytest.raises(SettingError, match="give that as --env"):
        agent.begin(gymnasium.make("headway/Sched2-v0"), 0)
