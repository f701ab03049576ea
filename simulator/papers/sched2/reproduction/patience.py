"""Delay scheduling by its patience: `python -m simulator.papers.sched2.reproduction.patience [--seeds 10]`.

The default of `sched2-delay` is the patience from which on more changes nothing. It is looked for on training traces of the
calibrated gap, with both readings of what the policy sees: the first ten jobs of the queue, or all of it. It prints one JSON object
with a row for each reading and patience: the average JCT, as a mean over traces with half of its 95 % interval (Student's t), in
seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from policies.learned.evaluation.statistics import Mean
from simulator.cluster.cluster import parse_cluster
from simulator.papers.programs import answer, progress
from simulator.papers.sched2.baselines import Baseline
from simulator.papers.sched2.reproduction.contenders import READINGS
from simulator.papers.sched2.reproduction.settings import CALIBRATED_GAP_S
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.process_pool import in_parallel
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import TRAINING_SEEDS, Sched2, generate
from simulator.traces.trace import Trace

PATIENCES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
CLUSTER = "15x8"
_DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Row:
    """One patience with one reading."""

    reading: str
    patience: float
    avg_jct_s: float
    ci95: float | None


def jct_s(trace: Trace, window: int, patience: float) -> float:
    """Return the average JCT of delay scheduling on a trace."""
    cluster = parse_cluster(CLUSTER)
    slowdown = build(["locality"], topology=cluster.topology, profiles=paper_profiles("sched2"))
    run = Baseline(_DELAY, trace, cluster, slowdown, window, patience=patience).run()
    found = metrics.average_jct_s(Result.of(run, _DELAY, 0.0))
    assert found is not None
    return found


def rows(traces: Sequence[Trace], patiences: Sequence[float] = PATIENCES) -> list[Row]:
    """Return a row for each reading and patience."""
    work = {
        f"{reading}, patience {patience:g}": (reading, window, patience)
        for reading, window in READINGS.items()
        for patience in patiences
    }

    def run(label: str, _report: object) -> Row:
        reading, window, patience = work[label]
        mean = Mean.of([jct_s(trace, window, patience) for trace in traces])
        return Row(reading, patience, mean.mean, mean.ci95)

    return in_parallel(list(work), run, lambda label, share: progress(label) if share >= 1 else None)


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the simulations of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.sched2.reproduction.patience",
        description="Delay scheduling by its patience, as JSON.",
    )
    parser.add_argument(
        "--seeds", type=int, default=10, choices=range(1, 31), metavar="N", help="training traces: 1 to 30"
    )
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of a trace")
    given = parser.parse_args(arguments)
    make = partial(Sched2, jobs=given.jobs, mean_gap_s=CALIBRATED_GAP_S)
    traces = [generate(make(seed=seed)) for seed in TRAINING_SEEDS[: given.seeds]]
    return {"seeds": given.seeds, "jobs": given.jobs, "rows": [asdict(row) for row in rows(traces)]}


if __name__ == "__main__":
    sys.exit(answer(program))
