"""Training of the network of the baseline DeepSys: `python -m simulator.papers.marl.deepsys_training [--store]`.

Random placement, load balancing and Tetris act on training seeds, on a fat-tree of 16 servers with one and two times the paper's
jobs; every job that runs in an interval gives one row. It prints one JSON object with the mean absolute and relative error on seeds
of validation; with `--store` the network becomes the one that comes with Headway.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from policies.learned.training.systems import TRAINING_SEEDS, VALIDATION_SEEDS
from simulator.papers.marl import rules
from simulator.papers.marl.episodes import JobSource
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.deepsys import FEATURES, FILE, features
from simulator.papers.marl.rules.named import RULES
from simulator.papers.marl.rules.speed_network import SpeedNetwork
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.jobs import Floats
from simulator.papers.marl.world import World
from simulator.papers.programs import answer

TEACHERS = ("random", "lb", "tetris")
_LOADS = (15.0, 30.0)
_HIDDEN = 64


def rows_of(seeds: Iterable[int], k: int = 4) -> tuple[Floats, Floats]:
    """Return features (R, FEATURES) and speeds relative to computing alone (R) of all jobs in all intervals."""
    inputs: list[Floats] = []
    speeds: list[Floats] = []
    for seed in seeds:
        for load in _LOADS:
            options = MarlOptions(k=k, jobs_per_interval=load)
            center = data_center(options)
            jobs = JobSource(options, center).draw(np.random.default_rng(seed), {"trace_seed": seed})
            for name in TEACHERS:
                _play(World(options, center), jobs, name, seed, inputs, speeds)
    return np.concatenate(inputs), np.concatenate(speeds)


def _play(world: World, jobs: Any, name: str, seed: int, inputs: list[Floats], speeds: list[Floats]) -> None:
    rule = RULES[name]()
    world.begin(jobs)
    rule.begin(world, seed)
    while not world.is_over:
        for scheduler in range(world.center.schedulers):
            while world.head(scheduler) is not None:
                world.act(scheduler, rule.act(scheduler))
        running = np.array(sorted(world.running), dtype=np.int64)
        if len(running):
            inputs.append(np.concatenate([features(world, job, world.placed.group[[job]]) for job in running.tolist()]))
            speeds.append(jobs.compute_s[running] / world.step_s(running))
        if world.queues.is_empty:
            world.advance()


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.deepsys_training", description="Train the network of DeepSys."
    )
    parser.add_argument("--seeds", type=int, default=40, help="training seeds")
    parser.add_argument("--steps", type=int, default=6000, help="gradient steps, of 256 rows each")
    parser.add_argument("--store", action="store_true", help="keep the network as the one that comes with Headway")
    given = parser.parse_args(arguments)
    rows, values = rows_of(TRAINING_SEEDS[: given.seeds])
    rng = np.random.default_rng(0)
    network = SpeedNetwork.drawn((FEATURES, _HIDDEN, _HIDDEN, 1), rng)
    network.fit(rows, values, rng, steps=given.steps, batch=256, rate=0.003)
    held_back, true = rows_of(VALIDATION_SEEDS)
    error = np.abs(network.predict(held_back) - true)
    if given.store:
        (Path(str(files(rules))) / FILE).write_text(network.as_text(), encoding="utf-8")
    return {
        "rows": len(rows),
        "held_back": len(true),
        "absolute_error": float(error.mean()),
        "relative_error": float((error / true).mean()),
        "of_the_mean": float(np.abs(true - values.mean()).mean()),
    }


if __name__ == "__main__":
    sys.exit(answer(program))
