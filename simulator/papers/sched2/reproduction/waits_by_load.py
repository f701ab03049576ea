"""Waiting times of SCHED2's baselines by the mean gap between submits, as a program.

`python -m simulator.papers.sched2.reproduction.waits_by_load`

The paper gives the mean gap (172 s) and what its baselines wait (19,075 s), but neither durations nor sizes; with those that the
generator chooses both cannot hold. This looks for the gap at which baselines wait as in the paper, with both readings of what
a baseline sees: the first ten jobs of the queue, or all of it. It prints one JSON object, made from training traces only:

- `rows`: for each gap, window (0: the whole queue) and baseline the means over traces of wait, run time, JCT (s), makespan (s),
  effectiveness and load; `wait_ci95_s` is half of the 95 % interval of the wait;
- `gap_s`: for each window the gap at which the mean wait of the six, that of the best of them, and each one's, is `--wait`;
  linear between the two gaps around it, null where it is not between any two.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean
from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.papers.programs import answer, progress
from simulator.papers.sched2.baselines import BASELINES, Baseline
from simulator.results import metrics
from simulator.results.result import Result
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import TRAINING_SEEDS, Sched2, generate
from simulator.traces.trace import NS_PER_S, Trace

GAPS_S = (60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 130.0, 150.0, 172.0, 200.0)
WINDOWS = (0, 10)
PAPER_WAIT_S = 19_075.0


@dataclass(frozen=True)
class Row:
    """Means over the traces of one gap, window and baseline."""

    gap_s: float
    window: int
    baseline: str
    load: float
    wait_s: float
    wait_ci95_s: float | None
    """Half of the 95 % interval of the wait (Student's t); None with one trace."""
    run_s: float
    jct_s: float
    makespan_s: float
    effectiveness: float


def load_of(trace: Trace, cluster: Cluster) -> float:
    """Return the GPU-seconds with the best locality that arrive per second, as a share of the cluster."""
    work = float((trace.num_gpus * trace.duration_ns.astype(np.float64)).sum())
    return work / float(trace.submit_ns[-1] - trace.submit_ns[0]) / cluster.num_gpus


def rows(gaps_s: Sequence[float], seeds: int, cluster: Cluster, like: Sched2) -> Iterator[Row]:
    """Return rows of every baseline at every gap, with both windows, which are the same to FIFO: it sees only the head."""
    slowdown = build(["locality"], topology=cluster.topology, profiles=paper_profiles("sched2"))
    for gap_s in gaps_s:
        progress(f"gap {gap_s:g} s")
        traces = [generate(replace(like, seed=seed, mean_gap_s=gap_s)) for seed in TRAINING_SEEDS[:seeds]]
        load = float(np.mean([load_of(trace, cluster) for trace in traces]))
        for window in WINDOWS:
            for name in BASELINES:
                runs = [Baseline(name, trace, cluster, slowdown, window).run() for trace in traces]
                figures = [_figures(Result.of(run, name, 0.0)) for run in runs]
                wait_s, *rest = np.mean(figures, axis=0).tolist()
                wait = Mean.of([each[0] for each in figures])
                yield Row(gap_s, window, name, load, wait_s, wait.ci95, *rest)


def _figures(result: Result) -> tuple[float, ...]:
    wait_s, jct_s = metrics.average_wait_s(result), metrics.average_jct_s(result)
    effectiveness, run_s = metrics.effectiveness(result), metrics.average_service_s(result)
    assert wait_s is not None and jct_s is not None and effectiveness is not None and run_s is not None
    return wait_s, run_s, jct_s, result.makespan_ns / NS_PER_S, effectiveness


def gap_of(wait_s: float, found: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Return the gap at which the wait has this length, by window and baseline; None = it is not between two gaps."""
    gaps = sorted({row.gap_s for row in found})
    table: dict[str, dict[str, float | None]] = {}
    for window in WINDOWS:
        waits = {
            gap: {row.baseline: row.wait_s for row in found if row.window == window and row.gap_s == gap}
            for gap in gaps
        }
        curves: Mapping[str, list[float]] = {
            "mean of all": [float(np.mean(list(waits[gap].values()))) for gap in gaps],
            "best": [min(waits[gap].values()) for gap in gaps],
            **{name: [waits[gap][name] for gap in gaps] for name in BASELINES},
        }
        table[str(window)] = {name: _crossing(gaps, curve, wait_s) for name, curve in curves.items()}
    return table


def _crossing(gaps: Sequence[float], waits: Sequence[float], wanted: float) -> float | None:
    for (gap, wait), (next_gap, next_wait) in pairwise(zip(gaps, waits, strict=True)):
        if next_wait <= wanted <= wait:
            return gap + (next_gap - gap) * (wait - wanted) / (wait - next_wait)
    return None


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the simulations of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.sched2.reproduction.waits_by_load", description="Waits by gap, as JSON."
    )
    parser.add_argument("--gaps", type=float, nargs="+", default=GAPS_S, help="seconds")
    parser.add_argument("--seeds", type=int, default=10, help="training traces, at most 30")
    parser.add_argument("--one-gpu-share", type=float, default=0.68, help="0.60, 0.68 and 0.75 in the paper")
    parser.add_argument("--stretch", type=float, default=1.0, help="durations are so many times the generator's")
    parser.add_argument("--jobs", type=int, default=1000, help="of a trace")
    parser.add_argument("--cluster", default="15x8", help="as headway-sim has it")
    parser.add_argument("--wait", type=float, default=PAPER_WAIT_S, help="seconds, whose gap is looked for")
    given = parser.parse_args(arguments)
    cluster, usual = parse_cluster(given.cluster), Sched2()
    like = replace(
        usual,
        jobs=given.jobs,
        one_gpu_share=given.one_gpu_share,
        cluster_gpus=cluster.num_gpus,
        median_s=usual.median_s * given.stretch,
        mean_s=usual.mean_s * given.stretch,
    )
    found = list(rows(given.gaps, given.seeds, cluster, like))
    return {
        "seeds": given.seeds,
        "jobs": given.jobs,
        "one_gpu_share": given.one_gpu_share,
        "stretch": given.stretch,
        "cluster": given.cluster,
        "wait_s": given.wait,
        "gap_s": gap_of(given.wait, found),
        "rows": [asdict(row) for row in found],
    }


if __name__ == "__main__":
    sys.exit(answer(program))
