"""A program that measures steps per second of RL-TAPS' environments, which step together in one process.

`python -m simulator.papers.rl_taps_bench [--envs N ...] [--turns N] [--rounds N] [--preemption full|never]`

Actions are uniformly random, drawn before. A run begins with new episodes, and each figure is that of the best run, because other
programs on the machine only add to it. CPU time is that of this process alone, and of all its threads.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import numpy as np

from simulator.papers.rl_taps.options import FULL, NEVER
from simulator.papers.rl_taps.vector import RlTapsVectorEnv

SEED = 1


def measure(envs: int, turns: int, rounds: int, preemption: str) -> tuple[float, float]:
    """Return the least seconds of a run, by the clock and of CPU time."""
    made = RlTapsVectorEnv(envs, preemption=preemption)
    gpus, choices = made.batch.columns.actions
    actions = np.random.default_rng(SEED).integers(0, choices, (turns, envs, gpus))
    wall, cpu = float("inf"), float("inf")
    for _ in range(rounds):
        made.reset(seed=SEED)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for action in actions:
            made.step(action)
        wall = min(wall, time.perf_counter() - begin)
        cpu = min(cpu, time.process_time() - begin_cpu)
    return wall, cpu


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a line for each number of environments."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.rl_taps_bench",
        description="Measure steps per second of RL-TAPS' environments.",
    )
    parser.add_argument("--envs", type=int, nargs="*", default=[1, 20, 64, 128], help="environments that step together")
    parser.add_argument("--turns", type=int, default=300, help="steps of a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs, of which the best counts")
    parser.add_argument("--preemption", default=FULL, choices=(FULL, NEVER))
    given = parser.parse_args(arguments)
    for envs in given.envs:
        wall, cpu = measure(envs, given.turns, given.rounds, given.preemption)
        steps = envs * given.turns
        sys.stdout.write(
            f"{envs:5} environments: {steps / wall:9,.0f} steps/s, {steps / cpu:9,.0f} a second of CPU "
            f"({cpu / steps * 1e6:.1f} us of CPU a step)\n"
        )
    sys.stdout.write(f"load average {os.getloadavg()[0]:.2f}\n")


if __name__ == "__main__":
    main()
