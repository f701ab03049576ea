"""Online learning in the testbed of figure 11: `python -m simulator.papers.marl.reproduction.online [--days 30] [--out FILE]`.

The two schedulers begin with the weights that come with Headway, each with a copy of its own, and go on learning from their own
decisions, as in section VII: after each day of jobs they make gradient steps on its decisions. So every day is met by weights that
never saw it. While they learn, actions are drawn, not the likeliest. Beside them act, on the same days, the same weights without
learning and the rules of figure 11.

It prints one JSON object: for each day the average JCT in seconds of each, and the losses of each scheduler (figure 11a), which are
those of actor and critic before the day's gradient steps. The days are test seeds, from the hundredth on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from policies.learned.evaluation.statistics import Mean, change, mean_as_json
from policies.learned.marl.online import OnlineSchedulers
from policies.learned.marl.system import agent
from policies.learned.training.systems import TEST_SEEDS
from policies.serving.runtime.arithmetic import use_one_thread
from simulator.envs import MARL
from simulator.papers.marl.env import OUTCOME
from simulator.papers.marl.reproduction.contenders import KUBERNETES, LB, LIF, OURS, TETRIS
from simulator.papers.marl.reproduction.settings import JCT, TESTBED, run_agent, run_rule
from simulator.papers.marl.rules.named import RULES
from simulator.papers.programs import answer, progress
from simulator.traces.trace import Trace

ONLINE = "marl, learning online"
_FIRST = 100
_RULES = (TETRIS, LB, LIF, KUBERNETES)
_PER_MEAN = 10
"""Days of a mean over days."""


class _Outcomes:
    """One environment of the testbed on the jobs of a day, which keeps the average JCT of its episode."""

    def __init__(self, jobs: Trace, needed: Mapping[str, Any]) -> None:
        options = {**TESTBED.options, **needed, "traces": (jobs,), "profiles": TESTBED.profiles, "workers": 0}
        self._envs: Any = gymnasium.make_vec(
            MARL, num_envs=1, vectorization_mode="vector_entry_point", autoreset=AutoresetMode.SAME_STEP, **options
        )
        self.average_jct_s = float("nan")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step the environment; at the end of its episode keep the average JCT."""
        found: tuple[Any, ...] = self._envs.step(actions)
        if (found[2] | found[3])[0]:
            self.average_jct_s = float(found[4]["final_info"][OUTCOME][JCT][0])
        return found


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the days that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.reproduction.online",
        description="Online learning of MARL's schedulers in the testbed of figure 11, as JSON.",
    )
    parser.add_argument("--days", type=int, default=30, help="days of 80 jobs")
    parser.add_argument("--learning-rate", type=float, help="Adam's learning rate; that of the training")
    given = parser.parse_args(arguments)
    use_one_thread()
    online, frozen = OnlineSchedulers(given.learning_rate), agent("")
    jct_s: dict[str, list[float]] = {name: [] for name in (ONLINE, OURS, *_RULES)}
    losses: list[list[float]] = []
    for seed in TEST_SEEDS[_FIRST : _FIRST + given.days]:
        progress(f"day {len(losses) + 1} of {given.days}")
        envs = _Outcomes(TESTBED.trace(seed), online.options)
        losses.append([round(each, 5) for each in online.learn(envs)])
        jct_s[ONLINE].append(envs.average_jct_s)
        envs.close()
        jct_s[OURS].append(run_agent(frozen, TESTBED, seed).figures[JCT])
        for name in _RULES:
            jct_s[name].append(run_rule(RULES[name](), TESTBED, seed).figures[JCT])
    return {
        "testbed": TESTBED.says,
        "days": given.days,
        JCT: {name: mean_as_json(Mean.of(values)) for name, values in jct_s.items()},
        "change_by_learning": {
            f"days {first + 1} to {first + _PER_MEAN}": mean_as_json(
                change(jct_s[ONLINE][first : first + _PER_MEAN], jct_s[OURS][first : first + _PER_MEAN])
            )
            for first in range(0, given.days, _PER_MEAN)
        },
        "change_against": {name: mean_as_json(change(jct_s[ONLINE], jct_s[name])) for name in (OURS, *_RULES)},
        "loss_of_each_scheduler": losses,
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(answer(program))
