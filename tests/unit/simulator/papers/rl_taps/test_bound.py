"""Lower bounds: by hand, and below what rules reach."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.training.agents import Agent, UniformAgent
from simulator.agents.episodes import play
from simulator.papers.rl_taps.bound import fastest, mean_slowdown_bound
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


def test_the_highest_speed_alone() -> None:
    found = fastest(jobs_of(sequence((0, 1, 1)), OPTIONS), LINKS, OPTIONS)
    # 8 GPUs of a rack are 0.964, and 32 of four racks 1.336.
    assert found.tolist() == pytest.approx([0.9 * 32 / (1 + 1.6 * RATIO * np.sqrt(32))])


def test_a_job_alone_needs_its_steps() -> None:
    # 6 cells at 1.336 a step are 5 steps, for a length of 2.
    assert mean_slowdown_bound(jobs_of(sequence((3, 3, 2)), OPTIONS), LINKS, OPTIONS) == pytest.approx(2.5)


def test_many_jobs_share_all_gpus() -> None:
    # A hundred jobs of 12 x 10 cells at once: 120 / 28.8 = 4.17 steps each on all GPUs, one after the other.
    jobs = jobs_of(sequence(*[(0, 12, 10)] * 100), RlTapsOptions(step_s=STEP_S, max_steps=10_000))
    options = RlTapsOptions(step_s=STEP_S, max_steps=10_000)
    own = 120 / fastest(jobs, LINKS, options)[0]
    expected = (np.mean(120 / 28.8 * (np.arange(100) + 0.5)) + own / 2) / 10
    assert mean_slowdown_bound(jobs, LINKS, options) == pytest.approx(expected)
    # Where Tmax cuts off, only the bound of each job alone holds.
    short = RlTapsOptions(step_s=STEP_S, max_steps=400)
    assert mean_slowdown_bound(jobs, LINKS, short) == pytest.approx(np.ceil(own) / 10)


@pytest.mark.parametrize("agent", [BestFit(), Greedy(), UniformAgent()], ids=lambda agent: type(agent).__name__)
def test_no_rule_is_below_the_bound(agent: Agent) -> None:
    for seed in range(2):
        trace = generate("rl-taps", RLTaps(jobs=15, seed=seed))
        env = RlTapsEnv(traces=[trace])
        slowdown = play(env, agent, seed).outcome["mean_slowdown"]
        assert slowdown >= mean_slowdown_bound(jobs_of(trace, env.options), LINKS, env.options)
