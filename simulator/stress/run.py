"""Run policies on the shapes, and compare each one's average JCT with that of the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.errors import EncoderError
from simulator.cluster.cluster import parse_cluster
from simulator.results.metrics import summary
from simulator.results.result import Result
from simulator.runs.options import RunOptions
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import OnProgress, collect_seldom, drive
from simulator.runs.scenario import Scenario, opened_policy
from simulator.stress.shapes import SHAPES, trace_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StressOptions:
    """Policies, shapes, and the rest of a run."""

    policies: tuple[str, ...]
    """Each NAME[:key=value,...]; ratios are to the first."""
    shapes: tuple[str, ...]
    cluster: str
    jobs: int
    seed: int
    slowdown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one shape. Without figures it refused the cluster, and `refused` says why."""

    shape: str
    policy: str
    avg_jct_s: float | None = None
    guarded_share: float = 0.0
    guarded_inside_share: float | None = None
    """Share of the decisions inside the range of its training that a guard made; None: there were none."""
    unfinished: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Stress:
    """All outcomes."""

    options: StressOptions
    outcomes: Sequence[Outcome]

    def ratio(self, outcome: Outcome) -> float | None:
        """Return its average JCT over that of the first policy on the same shape; None if one of them has none."""
        first = next(
            each for each in self.outcomes if (each.shape, each.policy) == (outcome.shape, self.options.policies[0])
        )
        if outcome.avg_jct_s is None or not first.avg_jct_s:
            return None
        return outcome.avg_jct_s / first.avg_jct_s

    def above(self, most: float) -> list[Outcome]:
        """Return the outcomes whose ratio is above that, and those that left jobs unfinished."""
        return [each for each in self.outcomes if each.unfinished or (self.ratio(each) or 0.0) > most]


def stress(options: StressOptions, on_progress: OnProgress, processes: int | None = None) -> Stress:
    """Run every policy on every shape. Raises SimulatorError, PolicyError."""
    work = {f"{policy} on {shape}": (policy, shape) for shape in options.shapes for policy in options.policies}

    def do(label: str, report: OnProgress) -> Outcome:
        return _outcome(*work[label], options, report)

    found = in_parallel(list(work), do, _mean(len(work), on_progress), processes)
    return Stress(options, found)


def _outcome(policy: str, name: str, options: StressOptions, on_progress: OnProgress) -> Outcome:
    collect_seldom()
    shape = SHAPES[name]
    text = shape.cluster or options.cluster
    cluster = parse_cluster(text)
    run = RunOptions(
        trace=Path(name),
        cluster=text,
        slowdown=options.slowdown,
        seed=options.seed,
        models="normal",
        drop_impossible=True,
    )
    scenario = Scenario.on(run, trace_of(name, shape, cluster, options.jobs, options.seed), cluster)
    with opened_policy(policy, run, lenient=True) as made:
        simulation = scenario.simulation(made)
        begin = time.perf_counter()
        try:
            drive(simulation, on_progress)
        except EncoderError as error:
            return Outcome(name, policy, refused=str(error))
        result = Result.of(simulation, policy, time.perf_counter() - begin)
    figures = summary(result)
    inside = figures.get("guarded_inside_share")
    return Outcome(
        name,
        policy,
        _number(figures.get("avg_jct_s")),
        _number(figures.get("guarded_share")) or 0.0,
        _number(inside),
        len(simulation.unfinished),
    )


def _number(figure: object) -> float | None:
    return float(figure) if isinstance(figure, int | float) else None


def _mean(count: int, on_progress: OnProgress) -> Callable[[str, float], None]:
    shares: dict[str, float] = {}

    def add(name: str, share: float) -> None:
        shares[name] = share
        on_progress(sum(shares.values()) / count)

    return add


def as_json(found: Stress) -> Mapping[str, object]:
    """Return everything as one JSON object."""
    return {
        "cluster": found.options.cluster,
        "jobs": found.options.jobs,
        "seed": found.options.seed,
        "slowdown": list(found.options.slowdown),
        "first": found.options.policies[0],
        "outcomes": [
            {
                "shape": each.shape,
                "policy": each.policy,
                "avg_jct_s": each.avg_jct_s,
                "ratio": found.ratio(each),
                "guarded_share": each.guarded_share,
                "guarded_inside_share": each.guarded_inside_share,
                "unfinished": each.unfinished,
                "refused": each.refused,
            }
            for each in found.outcomes
        ],
    }
