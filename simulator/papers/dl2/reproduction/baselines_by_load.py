"""DL2's baselines by cluster and load: `python -m simulator.papers.dl2.reproduction.baselines_by_load [--gaps 1800] ...`.

The paper gives a share of GPUs in use of 62 % for DRF, and gains over DRF and Optimus by which Optimus is 32 % better than DRF; it
gives no load. This prints one JSON object with a row for each cluster, mean gap and speeds: DRF's share of GPUs in use, and the
change of the average JCT of Tetris and Optimus against DRF, as means over the seeds of validation. Only baselines run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from policies.learned.evaluation.statistics import changes
from policies.learned.training.systems import VALIDATION_SEEDS
from simulator.cluster.cluster import parse_cluster
from simulator.papers.dl2.reproduction.settings import JOBS, MAIN, ElasticSetting, acting
from simulator.papers.programs import answer, progress
from simulator.reproducing.experiment import Kind
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.dl2 import DL2, generate
from simulator.traces.trace import Trace

BASELINES = ("dl2-drf", "dl2-tetris", "dl2-optimus")
SPEEDS = {"measured": "dl2-measured", "sizes": "dl2"}


def setting(cluster: str, gap_s: float, speeds: str) -> ElasticSetting:
    """Return the setting of the experiment on another cluster, with another load or other speeds."""
    made = parse_cluster(cluster)
    like = DL2(jobs=JOBS, mean_gap_s=gap_s, cluster_gpus=made.num_gpus)

    def trace(seed: int) -> Trace:
        return generate(replace(like, seed=seed))

    return replace(MAIN, cluster=made, trace=trace, profiles=paper_profiles(SPEEDS[speeds]))


def row(cluster: str, gap_s: float, speeds: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the figures of one setting."""
    where = setting(cluster, gap_s, speeds)
    runs = {name: [acting(name, Kind.BASELINE).run(where, seed, None).figures for seed in seeds] for name in BASELINES}
    jct_s = {name: [figures["avg_jct_s"] for figures in found] for name, found in runs.items()}
    mean = partial(_mean, len(seeds))
    return {
        "cluster": cluster,
        "gap_s": gap_s,
        "speeds": speeds,
        "drf_utilization": mean([figures["utilization"] for figures in runs["dl2-drf"]]),
        "tetris_change": mean(changes(jct_s["dl2-tetris"], jct_s["dl2-drf"])),
        "optimus_change": mean(changes(jct_s["dl2-optimus"], jct_s["dl2-drf"])),
    }


def _mean(count: int, values: Sequence[float]) -> float:
    return round(sum(values) / count, 4)


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the simulations of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.baselines_by_load",
        description="DL2's baselines by cluster and load, as JSON.",
    )
    parser.add_argument("--clusters", nargs="+", default=["13x2", "26x2", "36x2", "13x4"], metavar="NxG")
    parser.add_argument("--gaps", nargs="+", type=float, default=[1200.0, 1800.0, 2400.0], metavar="S")
    parser.add_argument("--speeds", nargs="+", choices=sorted(SPEEDS), default=["measured"])
    parser.add_argument("--seeds", type=int, default=len(VALIDATION_SEEDS), help="validation traces")
    given = parser.parse_args(arguments)
    found = []
    for speeds in given.speeds:
        for cluster in given.clusters:
            for gap_s in given.gaps:
                progress(f"{cluster}, gap {gap_s:g} s, speeds {speeds}")
                found.append(row(cluster, gap_s, speeds, VALIDATION_SEEDS[: given.seeds]))
    return {"seeds": given.seeds, "rows": found}


if __name__ == "__main__":
    sys.exit(answer(program))
