"""Time of a decision of RL-TAPS' agent: `python -m simulator.papers.rl_taps.reproduction.inference [--weights FOLDER] [--steps N]`.

It prints one JSON object with the milliseconds from the image to the slots of all GPUs, in the experiment's cluster.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from policies.learned.rl_taps.system import agent
from simulator.agents.episodes import make
from simulator.envs import RL_TAPS
from simulator.papers.programs import answer
from simulator.papers.rl_taps.reproduction.settings import trace

_FIRST = 10
"""Decisions that are not counted."""


def decisions_s(weights: str, steps: int) -> list[float]:
    """Return the seconds of the decisions of one sequence."""
    found = agent(weights).agent
    env = make(RL_TAPS, traces=(trace(0),))
    seen, _ = env.reset(seed=0)
    found.begin(env, 0)
    taken = []
    for _ in range(steps + _FIRST):
        begin = time.perf_counter()
        action = found.act(seen, None)
        taken.append(time.perf_counter() - begin)
        seen, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            seen, _ = env.reset(seed=0)
    env.close()
    return taken[_FIRST:]


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.rl_taps.reproduction.inference",
        description="Time of RL-TAPS' decisions, as JSON.",
    )
    parser.add_argument("--weights", default="", help="a folder of weights; those that come with Headway")
    parser.add_argument("--steps", type=int, default=500, help="decisions that are counted")
    given = parser.parse_args(arguments)
    taken_ms = np.array(decisions_s(given.weights, given.steps)) * 1e3
    return {
        "decisions": len(taken_ms),
        "decision_ms": {"median": float(np.median(taken_ms)), "p99": float(np.percentile(taken_ms, 99))},
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(answer(program))
