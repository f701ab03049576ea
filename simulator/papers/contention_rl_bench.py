"""Speed of contention RL's training: `python -m simulator.papers.contention_rl_bench [--stages 6] [--workers 2] [--json FILE]`.

Environment steps a second with learning, as `headway-policy train contention-rl` does it: episodes of 256 jobs, each step a
decision with a choice; rounds without a choice are skipped, and counted separately. The first stage warms up;
of the others the fastest counts, since other programs can only add time; the median is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.recipe import PpoTrainer, Recipe
from simulator.envs.vector import ProcessVectorEnv
from simulator.papers.bench import cpu_s
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.traces.generators.contention_rl import ContentionRL

SEED = 1
JOBS = 256


@dataclass(frozen=True, slots=True)
class Speed:
    """Speeds of the fastest stage and of the median stage."""

    steps_per_s: float
    median_steps_per_s: float
    rounds_per_s: float
    """Rounds of 300 s that passed in the fastest stage."""
    episode_s: float
    """Duration of an episode of 256 jobs at that speed, learning included."""
    steps_per_episode: float
    steps_per_cpu_s: float
    """Steps per second of CPU time on the critical path, the process of the training and its slowest worker: the speed while other
    programs use the cores too, except for their effect on clocks and caches. The best of the stages."""
    load: float
    """Mean load of the machine in the last minute, this training included."""


def environments(recipe: Recipe, workers: int) -> ProcessVectorEnv:
    """Return the environments of a training with this recipe."""
    make = partial(
        ContentionEnv,
        traces=ContentionRL(jobs=JOBS, demands=recipe.demands),
        cells="features",
        starts=recipe.starts,
        candidates=recipe.candidates,
        branch=recipe.branch,
        decide=recipe.decide,
        skip_forced=True,
    )
    return ProcessVectorEnv(make, recipe.envs, workers=workers, autoreset=AutoresetMode.SAME_STEP)


def speed(recipe: Recipe, stages: int, workers: int) -> Speed:
    """Train for so many stages; the first is not counted."""
    torch.set_num_threads(1)
    envs = environments(recipe, workers)
    try:
        encoding = Encoding(cells="features", starts=recipe.starts, candidates=recipe.candidates)
        training = PpoTrainer(envs, encoding, recipe, SEED)
        training.run_stage()
        rows: list[tuple[float, float, float]] = []
        pids = [os.getpid(), *(process.pid for process in envs.processes if process.pid)]
        lengths: list[int] = []
        for _ in range(stages - 1):
            begun_s, before = time.perf_counter(), [cpu_s(each) for each in pids]
            progress = training.run_stage()
            taken_s = time.perf_counter() - begun_s
            owner_s, *workers_s = [cpu_s(each) - then for each, then in zip(pids, before, strict=True)]
            rows.append((taken_s, owner_s + max(workers_s, default=0.0), progress.rounds))
            lengths += [episode.steps for episode in progress.episodes]
        steps = recipe.batches * recipe.steps * recipe.envs
        taken_s, _, rounds = min(rows)
        length = float(np.mean(lengths)) if lengths else float("nan")
        return Speed(
            steps_per_s=steps / taken_s,
            median_steps_per_s=steps / median(row[0] for row in rows),
            rounds_per_s=rounds / taken_s,
            episode_s=length * taken_s / steps,
            steps_per_episode=length,
            steps_per_cpu_s=steps / min(row[1] for row in rows),
            load=os.getloadavg()[0],
        )
    finally:
        envs.close()


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m simulator.papers.contention_rl_bench", description=__doc__)
    parser.add_argument("--stages", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2, help="processes of environments; 0: all in one process")
    parser.add_argument("--json", type=Path)
    print_speed(parser.parse_args())


def print_speed(given: argparse.Namespace) -> None:
    """Measure and print the speed of the training."""
    found = speed(Recipe(stages=given.stages), given.stages, given.workers)
    say(
        f"{found.steps_per_s:,.0f} steps/s with learning (median of stages {found.median_steps_per_s:,.0f}), load {found.load:.1f}"
    )
    say(
        f"{found.steps_per_cpu_s:,.0f} steps by each second of CPU on the longest way; {found.rounds_per_s:,.0f} rounds/s"
    )
    say(f"an episode of {JOBS} jobs: {found.steps_per_episode:.0f} steps, {found.episode_s:.2f} s")
    if given.json:
        given.json.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
