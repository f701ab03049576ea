"""The rules of MARL's world by network, servers, arrivals and number of schedulers.

    python -m simulator.papers.marl.rules_by_setting --k 8

This prints one JSON object with a row for each setting and rule: the mean over seeds of the average JCT in seconds with half of its
95 % interval, its relative change against the baseline with the least mean, seed by seed, the mean of p90 JCT, tasks forwarded and
jobs put off, and the decisions for a second of CPU time. `bound` is the lower bound of the average JCT. Seeds are those of
validation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean, change
from policies.learned.training.systems import VALIDATION_SEEDS
from simulator.papers.marl.bound import average_jct_bound_s
from simulator.papers.marl.episodes import JobSource, outcome
from simulator.papers.marl.options import ARCHITECTURES, FAT_TREE, NETWORKS, POWER8, MarlOptions
from simulator.papers.marl.rules.named import BASELINES, RULES
from simulator.papers.marl.rules.rule import play
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.world import World
from simulator.papers.programs import answer, progress

_SHOWN = ("avg_jct_intervals", "p90_jct_s", "mean_slowdown", "forwarded", "put_off")


def rows(options: Mapping[str, Any], rules: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of one setting."""
    asked = MarlOptions(**options)
    center = data_center(asked)
    source, world = JobSource(asked, center), World(asked, center)
    jobs = [source.draw(np.random.default_rng(seed), {"trace_seed": seed}) for seed in seeds]
    found: dict[str, Any] = {}
    jct_s: dict[str, list[float]] = {}
    for name in rules:
        begin, decisions, figures = time.process_time(), 0, []
        for seed, its in zip(seeds, jobs, strict=True):
            decisions += play(world, its, RULES[name](), seed)
            figures.append(outcome(world))
        cpu_s = time.process_time() - begin
        jct_s[name] = [each["avg_jct_s"] for each in figures]
        mean = Mean.of(jct_s[name])
        found[name] = {"avg_jct_s": _short(mean.mean), "ci95": _short(mean.ci95)}
        found[name] |= {figure: _short(float(np.mean([each[figure] for each in figures]))) for figure in _SHOWN}
        found[name]["decisions_per_cpu_s"] = round(decisions / cpu_s)
    baselines = [name for name in rules if name in BASELINES]
    if baselines:
        best = min(baselines, key=lambda name: sum(jct_s[name]))
        for name in rules:
            against = change(jct_s[name], jct_s[best])
            found[name] |= {"against": best, "change": _short(against.mean), "change_ci95": _short(against.ci95)}
    bound = Mean.of([average_jct_bound_s(its, asked.interval_s) for its in jobs])
    return {**options, "bound": _short(bound.mean), "rules": found}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the simulations of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.rules_by_setting",
        description="The rules of MARL's world, as JSON.",
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[FAT_TREE])
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=[POWER8])
    parser.add_argument("--arrivals", nargs="+", choices=("daily", "uniform", "poisson"), default=["daily"])
    parser.add_argument("--k", type=int, help="size of the network; without it, that of the paper")
    parser.add_argument("--jobs", type=float, default=15.0, help="jobs in an interval at each 100 servers")
    parser.add_argument("--forwarding", choices=("full", "always", "never"), default="full")
    parser.add_argument(
        "--schedulers", nargs="+", type=int, default=[0], help="numbers of schedulers; 0: one for each partition"
    )
    parser.add_argument("--single", action="store_true", help="one scheduler for the whole data center")
    parser.add_argument("--rules", nargs="+", choices=sorted(RULES), default=list(RULES))
    parser.add_argument("--seeds", type=int, default=len(VALIDATION_SEEDS), help="validation traces")
    given = parser.parse_args(arguments)
    found = []
    same = {"k": given.k, "jobs_per_interval": given.jobs, "forwarding": given.forwarding, "single": given.single}
    for network, architecture, arrivals, count in product(
        given.networks, given.architectures, given.arrivals, given.schedulers
    ):
        options = {"network": network, "architecture": architecture, "arrivals": arrivals, "schedulers": count, **same}
        progress(f"{network}, {architecture}, {arrivals}" + (f", {count} schedulers" if count else ""))
        found.append(rows(options, given.rules, VALIDATION_SEEDS[: given.seeds]))
    return {"seeds": given.seeds, "settings": found}


if __name__ == "__main__":
    sys.exit(answer(program))
