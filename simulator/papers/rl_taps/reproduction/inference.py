"""Time of a decision of RL-TAPS' agent: `python -m simulator.papers.rl_taps.reproduction.inference [--weights FOLDER] [--steps N]`.

It prints one JSON object with the milliseconds from the image to the slots of all GPUs, in the experiment's cluster, by the clock
and of CPU time. Like the policy server it computes in one thread.
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
from policies.serving.runtime.arithmetic import use_one_thread
from simulator.agents.episodes import make
from simulator.envs import RL_TAPS
from simulator.papers.programs import answer
from simulator.papers.rl_taps.reproduction.settings import trace

_FIRST = 10
"""Decisions that are not counted."""


def decisions_s(weights: str, steps: int) -> tuple[list[float], list[float]]:
    """Return the seconds of the decisions of one sequence, by the clock and of this thread's CPU time."""
    found = agent(weights).agent
    env = make(RL_TAPS, traces=(trace(0),))
    seen, _ = env.reset(seed=0)
    found.begin(env, 0)
    taken: list[float] = []
    cpu: list[float] = []
    for _ in range(steps + _FIRST):
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        action = found.act(seen, None)
        cpu.append(time.thread_time() - begin_cpu)
        taken.append(time.perf_counter() - begin)
        seen, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            seen, _ = env.reset(seed=0)
    env.close()
    return taken[_FIRST:], cpu[_FIRST:]


def _in_ms(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": 1e3 * float(np.median(seconds)), "p99": 1e3 * float(np.percentile(seconds, 99))}


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.rl_taps.reproduction.inference",
        description="Time of RL-TAPS' decisions, as JSON.",
    )
    parser.add_argument("--weights", default="", help="a folder of weights; those that come with Headway")
    parser.add_argument("--steps", type=int, default=500, help="decisions that are counted")
    given = parser.parse_args(arguments)
    taken, cpu = decisions_s(given.weights, given.steps)
    return {
        "decisions": len(taken),
        "decision_ms": _in_ms(taken),
        "decision_cpu_ms": _in_ms(cpu),
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    use_one_thread()
    sys.exit(answer(program))
