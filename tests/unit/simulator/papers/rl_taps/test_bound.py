"""Lower bounds: by hand, and below what rules reach."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.training.agents import Agent, UniformAgent
from simulator.agents.episodes import play
from simulator.papers.rl_taps.bound import mean_slowdown_bound, speeds_alone
from simulator.papers.rl_taps.env import RlTapsEnv
from simulator.papers.rl_taps.jobs import jobs_of
from simulator.papers.rl_taps.options import RlTapsOptions
from simulator.papers.rl_taps.rules.best_fit import BestFit
from simulator.papers.rl_taps.rules.greedy import Greedy
from simulator.traces.generators import generate
from simulator.traces.generators.rl_taps import RLTaps
from tests.unit.simulator.papers.rl_taps.test_batch import STEP_S, sequence
from tests.unit.simulator.papers.rl_taps.test_speeds import LINKS, RATIO

OPTIONS = RlTapsOptions(step_s=STEP_S)


def test_speeds_alone() -> None:
    found = speeds_alone(jobs_of(sequence((0, 1, 1)), OPTIONS), LINKS, OPTIONS)[0]
    # One GPU, eight of a rack and all of four racks.
    assert found[[0, 7, 31]].tolist() == pytest.approx(
        [0.9, 7.2 / (1 + RATIO * np.sqrt(8)), 28.8 / (1 + 1.6 * RATIO * np.sqrt(32))]
    )


def test_a_job_alone_needs_its_steps() -> None:
    # 6 cells at 1.336 a step are 5 steps, for a length of 2.
    assert mean_slowdown_bound(jobs_of(sequence((3, 3, 2)), OPTIONS), LINKS, OPTIONS) == pytest.approx(2.5)


def test_many_jobs_share_slots_and_gpus() -> None:
    # A hundred jobs of 8.1 cells at once. On one GPU 0.9 cells a step take x / 10 + (1 - x) / 32 of the supply.
    options = RlTapsOptions(step_s=STEP_S, max_steps=500)
    jobs = jobs_of(sequence(*[(0, 1, 8.1)] * 100), options)
    speeds, gpus = speeds_alone(jobs, LINKS, options)[0], np.arange(1, 33)
    needs = [8.1 * min((x / 10 + (1 - x) * gpus / 32) / speeds) for x in np.linspace(0, 1, 11)]
    assert needs[0] == pytest.approx(8.1 / 28.8)
    assert needs[-1] == pytest.approx(8.1 / 10 / speeds.max())
    undone = max(sum(max(0.0, 100 - step / need) for step in range(500)) for need in needs)
    assert mean_slowdown_bound(jobs, LINKS, options) == pytest.approx(undone / 8.1 / 100)
    # Without preemption 32 jobs can run, each on one GPU.
    never = RlTapsOptions(step_s=STEP_S, max_steps=500, preemption="never")
    undone = sum(max(0.0, 100 - 28.8 / 8.1 * step) for step in range(500))
    assert mean_slowdown_bound(jobs, LINKS, never) == pytest.approx(undone / 8.1 / 100)
    # Tmax cuts the sum off.
    short = RlTapsOptions(step_s=STEP_S, max_steps=20)
    undone = max(sum(100 - step / need for step in range(20)) for need in needs)
    assert mean_slowdown_bound(jobs, LINKS, short) == pytest.approx(undone / 8.1 / 100)


@pytest.mark.parametrize("agent", [BestFit(), Greedy(), UniformAgent()], ids=lambda agent: type(agent).__name__)
def test_no_rule_is_below_the_bound(agent: Agent) -> None:
    for seed in range(2):
        trace = generate("rl-taps", RLTaps(jobs=15, seed=seed))
        env = RlTapsEnv(traces=[trace])
        slowdown = play(env, agent, seed).outcome["mean_slowdown"]
        assert slowdown >= mean_slowdown_bound(jobs_of(trace, env.options), LINKS, env.options)
