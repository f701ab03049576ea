"""Gymnasium environments over the simulator's engine. Importing this package registers them.
Imports `cluster`, `engine`, `errors`, `kernel`, `results`, `slowdown` and `traces`; of other packages `policies`.

import gymnasium
env = gymnasium.make("simulator.envs:headway/Contention-v0", branch="B")
envs = gymnasium.make_vec("simulator.envs:headway/Contention-v0", 32, vectorization_mode="vector_entry_point", branch="B")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gymnasium.envs.registration import register, registry

CONTENTION = "headway/Contention-v0"
ELASTIC = "headway/ElasticAllocation-v0"
MARL = "headway/Marl-v0"
RL_TAPS = "headway/RlTaps-v0"
SCHED2 = "headway/Sched2-v0"
OWN_SPEEDS = frozenset({ELASTIC})
"""Environments in which jobs have speeds that no simulation has outside: a policy is compared with agents there by acting there."""

_BASELINES = {
    "contention-most-reward": (CONTENTION, "contention_rl.controls:MostReward"),
    "dl2-drf": (ELASTIC, "dl2.rules.baselines:DRF"),
    "dl2-tetris": (ELASTIC, "dl2.rules.baselines:Tetris"),
    "dl2-optimus": (ELASTIC, "dl2.rules.baselines:Optimus"),
    "dl2-fifo": (ELASTIC, "dl2.rules.baselines:FIFO"),
    "dl2-srtf": (ELASTIC, "dl2.rules.baselines:SRTF"),
    "dl2-greedy": (ELASTIC, "dl2.rules.greedy:Greedy"),
    "dl2-rule": (ELASTIC, "dl2.rules.linear_rule:LinearRule"),
    "dl2-pairs": (ELASTIC, "dl2.rules.linear_rule:FixedPairs"),
    "taps-random": (RL_TAPS, "rl_taps.rules.baselines:Random"),
    "taps-sjf": (RL_TAPS, "rl_taps.rules.baselines:ShortestJobFirst"),
    "taps-tetris": (RL_TAPS, "rl_taps.rules.baselines:Tetris"),
    "taps-best-fit": (RL_TAPS, "rl_taps.rules.best_fit:BestFit"),
    "taps-greedy": (RL_TAPS, "rl_taps.rules.greedy:Greedy"),
    "taps-one-each": (RL_TAPS, "rl_taps.rules.blocks:OneEach"),
    "taps-blocks": (RL_TAPS, "rl_taps.rules.blocks:Blocks"),
}
"""Agents that act in one environment by a rule: its id, and the class."""

_ENVS = (
    (CONTENTION, "contention_rl.env:ContentionEnv", "contention"),
    (ELASTIC, "dl2.env:ElasticAllocationEnv", "elastic"),
    (MARL, "marl.env:MarlEnv", "marl"),
    (RL_TAPS, "rl_taps.env:RlTapsEnv", "rl_taps"),
    (SCHED2, "sched2.env:Sched2Env", "sched2"),
)
"""Id of each environment, its class, and the function that makes many of them at once."""


for _name, _one, _many in _ENVS:
    if _name not in registry:
        register(
            _name, entry_point=f"simulator.papers.{_one}", vector_entry_point=f"simulator.papers.vectorized:{_many}"
        )


def baselines() -> dict[str, str]:
    """Return the names of the agents that act by a rule, with the id of the environment in which each acts."""
    return {name: env for name, (env, _) in _BASELINES.items()}


def baseline_class(name: str) -> Any:
    """Return the class of that name; its constructor takes the options."""
    module, _, kind = _BASELINES[name][1].partition(":")
    return getattr(import_module(f"simulator.papers.{module}"), kind)
