"""Speed of contention RL's training: `python -m simulator.papers.contention_rl_bench [--stages 6] [--workers 2] [--json FILE]`.

Environment steps a second with learning, as `headway-policy train contention-rl` does it: episodes of 256 jobs, each step a
decision with a choice; rounds without a choice are skipped, and counted separately. The first stage warms up;
of the others the fastest counts, since other programs can only add time; the median is printed too.

`--paper` has the paper's own figures, means and 90th percentiles of running time, on the normal mix of test seeds, and JCT with
queueing. `--pairs shared_thp_ratio.csv` takes the authors' table of measured pairs, `--slowdown pair-table:single=no` their code's
rule: jobs on one node neither suffer nor do harm.

`--latency` times decisions of RL-base and RL-Hybrid at 4 nodes of 8 GPUs instead.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from policies.api import load_policy, parse_policy
from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.network import ActorCritic
from policies.learned.contention_rl.policy import ContentionAgent, RlBase, RlHybrid
from policies.learned.contention_rl.recipe import PpoTrainer, Recipe
from policies.learned.training.systems import TEST_SEEDS
from policies.model import ClusterState
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.envs.vector import ProcessVectorEnv
from simulator.papers.bench import cpu_s
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.results.result import Result
from simulator.slowdown.neighbours import pair_table
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.traces.trace import NS_PER_S

SEED = 1
JOBS = 256
NODES = "4x8"
PAPERS_POLICIES = (
    "srtf",
    "las",
    "rl-base",
    "rl-hybrid",
    "rl-hybrid:greedy=one",
    "fewest-gpus",
    "contention-greedy:order=gpus",
)


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


def measured(path: Path) -> ModelProfiles:
    """Return the paper's profiles with the measured pairs of its authors."""
    with path.open(encoding="utf-8") as file:
        _, *others = next(lines := csv.reader(file))
        rows = [
            pair_table.PairRow(target, other, float(ratio))
            for target, *ratios in lines
            for other, ratio in zip(others, ratios, strict=True)
        ]
    return replace(paper_profiles("contention-rl"), pairs=pair_table.fit(rows)[0])


def running_times(
    policy: str, seeds: Sequence[int], profiles: ModelProfiles, slowdown: str
) -> tuple[float, float, float]:
    """Return mean and 90th percentile of running times, which the paper calls JCT, and mean JCT with queueing; in seconds."""
    cluster = parse_cluster(NODES)
    rows = []
    for seed in seeds:
        models = build([slowdown], topology=cluster.topology, profiles=profiles)
        trace = generate(ContentionRL(jobs=JOBS, seed=seed, demands=(2, 4, 8)))
        simulation = Simulation(trace, cluster, load_policy(*parse_policy(policy)), Settings(), models, profiles)
        simulation.run()
        result = Result.of(simulation, policy, 0.0)
        service_s, jct_s = result.service_ns / NS_PER_S, result.jct_ns / NS_PER_S
        rows.append((float(service_s.mean()), float(np.quantile(service_s, 0.9)), float(jct_s.mean())))
    mean_s, p90_s, jct_s = np.mean(rows, axis=0).tolist()
    return mean_s, p90_s, jct_s


def busy_states(count: int) -> list[ClusterState]:
    """Return states of a run in which jobs wait and one has just finished."""
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


def agent() -> ContentionAgent:
    """Return an agent of the delivered size with untrained weights: the time of an answer does not depend on them."""
    recipe = Recipe()
    encoding = Encoding(cells="features", starts=recipe.starts)
    torch.manual_seed(SEED)
    return ContentionAgent(encoding, ActorCritic(encoding, recipe.hidden, recipe.pair))


def latencies_ms(decisions: int) -> dict[str, list[tuple[float, float]]]:
    """Return wall and CPU times of single decisions. On a busy machine only CPU time is meaningful."""
    torch.set_num_threads(1)
    states = busy_states(100)
    taken: dict[str, list[tuple[float, float]]] = {}
    gc.freeze()
    for policy in (RlBase(agent()), RlHybrid(agent())):
        mine = taken.setdefault(policy.spec.name, [])
        for turn in range(decisions + 10):
            begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
            policy.decide(states[turn % len(states)])
            mine.append((1e3 * (time.perf_counter() - begun_s), 1e3 * (time.thread_time() - begun_cpu_s)))
        del mine[:10]
    return taken


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m simulator.papers.contention_rl_bench", description=__doc__)
    parser.add_argument("--stages", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2, help="processes of environments; 0: all in one process")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--slowdown", default="pair-table")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    if given.latency:
        print_latencies()
    elif given.paper:
        profiles = measured(given.pairs) if given.pairs else paper_profiles("contention-rl")
        print_running_times(TEST_SEEDS[: given.seeds], profiles, given.slowdown)
    else:
        print_speed(given)


def print_latencies() -> None:
    """Measure and print the times of decisions."""
    for name, taken in latencies_ms(500).items():
        say(f"{name}: {NODES}, up to {JOBS} waiting jobs, {len(taken)} decisions, load {os.getloadavg()[0]:.1f}")
        for clock, column in zip(("wall", "CPU"), np.array(taken).T, strict=True):
            half, p99 = np.quantile(column, [0.5, 0.99])
            say(f"  {clock} time: median {half:.1f} ms, p99 {p99:.1f} ms")


def print_running_times(seeds: Sequence[int], profiles: ModelProfiles, slowdown: str) -> None:
    """Simulate and print the running times of the paper's policies."""
    found_s = {name: running_times(name, seeds, profiles, slowdown) for name in PAPERS_POLICIES}
    for name, (mean_s, p90_s, jct_s) in found_s.items():
        against = ", ".join(
            f"against {other} {mean_s / found_s[other][0] - 1:+.1%}, p90 {p90_s / found_s[other][1] - 1:+.1%}"
            for other in ("srtf", "las")
        )
        say(f"{name}: running time {mean_s:,.0f} s, p90 {p90_s:,.0f} s; {against}; with queueing {jct_s:,.0f} s")


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
