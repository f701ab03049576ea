"""How fast contention RL trains: `python -m tests.bench.contention_rl [--stages 6] [--workers 2] [--json FILE]`.

Environment steps a second with learning, as `headway-policy train contention-rl` does it: episodes of 256 jobs, each step a
decision that somebody had to take; rounds without a choice are not stepped through, and counted apart. The first stage warms up;
of the others the fastest counts, as whatever else runs on the machine only adds, and the median stands beside it.

`--latency` times decisions of RL-base and RL-Hybrid at 4 nodes of 8 GPUs instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.network import Network
from policies.learned.contention_rl.policy import Agent, RlBase, RlHybrid
from policies.learned.contention_rl.recipe import Recipe, Training
from policies.model import ClusterState
from simulator.cluster import parse_cluster
from simulator.engine import Simulation
from simulator.envs.contention import ContentionEnv
from simulator.envs.vector import ProcessVectorEnv
from simulator.settings import Settings
from simulator.slowdown.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate

SEED = 1
JOBS = 256
NODES = "4x8"


@dataclass(frozen=True, slots=True)
class Speed:
    """Of the fastest stage, and of the one in the middle."""

    steps_per_s: float
    median_steps_per_s: float
    rounds_per_s: float
    """Rounds of 300 s that passed in the fastest stage."""
    episode_s: float
    """What an episode of 256 jobs takes, learning included: its decisions at that speed."""
    steps_per_episode: float
    cpu_us_per_step: float
    """Of the training's own process in that stage; its workers not counted."""
    load: float
    """Mean load of the machine in the last minute, this training included."""


def speed(recipe: Recipe, stages: int, workers: int) -> Speed:
    """Train for so many stages, the first not counted."""
    torch.set_num_threads(1)
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
    envs = ProcessVectorEnv(make, recipe.envs, workers=workers, autoreset=AutoresetMode.SAME_STEP)
    try:
        encoding = Encoding(cells="features", starts=recipe.starts, candidates=recipe.candidates)
        training = Training(envs, encoding, recipe, SEED)
        training.run_stage()
        rows: list[tuple[float, float, float]] = []
        lengths: list[int] = []
        for _ in range(stages - 1):
            begun_s, cpu_s = time.perf_counter(), time.process_time()
            progress = training.run_stage()
            taken_s = time.perf_counter() - begun_s
            rows.append((taken_s, time.process_time() - cpu_s, progress.rounds))
            lengths += [episode.steps for episode in progress.episodes]
        steps = recipe.batches * recipe.steps * recipe.envs
        taken_s, cpu_s, rounds = min(rows)
        length = float(np.mean(lengths)) if lengths else float("nan")
        return Speed(
            steps_per_s=steps / taken_s,
            median_steps_per_s=steps / median(row[0] for row in rows),
            rounds_per_s=rounds / taken_s,
            episode_s=length * taken_s / steps,
            steps_per_episode=length,
            cpu_us_per_step=1e6 * cpu_s / steps,
            load=os.getloadavg()[0],
        )
    finally:
        envs.close()


def busy_states(count: int) -> list[ClusterState]:
    """Moments of a run in which jobs wait and something has just finished."""
    profiles = paper_profiles("contention-rl")
    cluster = parse_cluster(NODES)
    models = build(["pair-table"], topology=cluster.topology, profiles=profiles)
    policy = RlHybrid(agent())
    trace = generate(ContentionRL(jobs=JOBS, seed=SEED, demands=(2, 4, 8)))
    simulation = Simulation(trace, cluster, policy, Settings(), models, profiles)
    states: list[ClusterState] = []
    while len(states) < count and simulation.advance():
        states.append(simulation.state())
        simulation.decide()
    return states


def agent() -> Agent:
    """Of the size that ships, with weights that nobody trained: how long an answer takes does not depend on them."""
    recipe = Recipe()
    encoding = Encoding(cells="features", starts=recipe.starts)
    torch.manual_seed(SEED)
    return Agent(encoding, Network(encoding, recipe.hidden, recipe.pair))


def latencies_ms(decisions: int) -> dict[str, list[float]]:
    """Wall time of single decisions."""
    torch.set_num_threads(1)
    states = busy_states(100)
    taken: dict[str, list[float]] = {}
    gc.freeze()
    for policy in (RlBase(agent()), RlHybrid(agent())):
        mine = taken.setdefault(policy.spec.name, [])
        for turn in range(decisions + 10):
            begun_s = time.perf_counter()
            policy.decide(states[turn % len(states)])
            mine.append(1e3 * (time.perf_counter() - begun_s))
        del mine[:10]
    return taken


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.contention_rl", description=__doc__)
    parser.add_argument("--stages", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2, help="processes of environments; 0: all in one process")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    if given.latency:
        for name, taken in latencies_ms(500).items():
            half, p99 = np.quantile(taken, [0.5, 0.99])
            print(
                f"{name}: {NODES}, up to {JOBS} waiting jobs, {len(taken)} decisions: median {half:.1f} ms, p99 {p99:.1f} ms"
            )
        return
    found = speed(Recipe(stages=given.stages), given.stages, given.workers)
    print(
        f"{found.steps_per_s:,.0f} steps/s with learning (median of stages {found.median_steps_per_s:,.0f}), load {found.load:.1f}"
    )
    print(f"{found.rounds_per_s:,.0f} rounds/s; {found.cpu_us_per_step:.0f} us of CPU a step beside the workers'")
    print(f"an episode of {JOBS} jobs: {found.steps_per_episode:.0f} steps, {found.episode_s:.2f} s")
    if given.json:
        given.json.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
