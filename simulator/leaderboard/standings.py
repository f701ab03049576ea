"""Figures of a leaderboard: means over runs, and ratios of policies in pairs with their intervals.

Two policies are compared run by run, on the same jobs and cluster, by the ratio of their figures. A *block* is a part of a trace.
Its runs on several clusters, at several loads and estimates have the same jobs and are not independent, so the logarithms of their
ratios are averaged; the 95 % interval of the geometric mean is Student's t over the blocks' means of logarithms. A difference is
significant if the interval leaves out 1. Intervals are not corrected for the number of pairs: of twenty equal pairs, one is
expected to be outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from statistics import fmean

from policies.learned.evaluation.statistics import Mean
from simulator.leaderboard.perform import Run

RATIOS = ("avg_jct_s", "p90_jct_s", "p99_jct_s", "makespan_s")
"""Figures that are compared in pairs; less is better."""
CONTENTION = ("slowed_share", "slowed_by", "shared_links_share", "shared_links_gpu_share")
"""Figures of contention, by their names in `simulator.results.metrics`."""
METHOD = (
    "Times are geometric means over runs. A ratio is that of two policies in the same run; its 95 % interval is Student's t over "
    "blocks (a part of a trace; its clusters, loads and estimates are averaged first), on logarithms. Intervals are not "
    "corrected for the number of pairs. Fairness is Themis' rho (Mahajan et al., NSDI 2020): JCT over the JCT on a dedicated 1/N "
    "of the cluster, N the mean number of active jobs; up to 1 a job loses nothing by sharing."
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean of ratios, and its 95 % interval; without an interval where there is only one block."""

    mean: float
    low: float | None
    high: float | None

    @property
    def significant(self) -> bool:
        """True if the interval leaves out 1."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high

    def as_json(self) -> dict[str, float | bool | None]:
        """Return the ratio as values that JSON has."""
        return {"ratio": self.mean, "low": self.low, "high": self.high, "significant": self.significant}


@dataclass(frozen=True, slots=True)
class Standing:
    """Means of one policy over its runs."""

    policy: str
    times_s: Mapping[str, float]
    """Geometric means of the times."""
    stops_per_job: float
    """Preemptions, moves and resizes, mean over runs."""
    fairness: float
    """Mean rho of a run, geometric mean over runs."""
    worst_fairness: float
    """Largest rho of a job in any run."""
    guarded_share: float
    """Share of the decisions that a guard made, mean over runs."""
    most_guarded_share: float
    """The same in the run where it is largest."""
    guarded_inside_share: float
    """Share of the decisions inside the range of its training that a guard made, mean over the runs that have such decisions."""
    contention: Mapping[str, float | None]
    """Means over runs of the figures in `CONTENTION`; None where no run has the figure."""


class Standings:
    """The runs by policy. Invariant: every policy has one run for each key, in the same order."""

    def __init__(self, runs: Sequence[Run], policies: Sequence[str]) -> None:
        """Sort the runs."""
        self.runs = runs
        self._of = {policy: [run for run in runs if run.policy == policy] for policy in policies}
        self.unfinished = {policy: sum(map(_left, mine)) for policy, mine in self._of.items()}
        """Number of jobs that each policy never finished; a policy with any has no figures."""
        self.policies = [policy for policy in policies if not self.unfinished[policy]]

    def table(self) -> list[Standing]:
        """Return the policies that finished every job, the shortest average JCT first."""
        return sorted(map(self._standing, self.policies), key=lambda each: each.times_s[RATIOS[0]])

    def ratio(
        self, policy: str, other: str, metric: str, only: Callable[[Run], bool] = lambda _run: True
    ) -> Ratio | None:
        """Return the ratio of a figure of two policies, over the runs that `only` chooses; None if a figure is missing or 0."""
        blocks: dict[tuple[str, str], list[float]] = {}
        for mine, theirs in zip(self._of[policy], self._of[other], strict=True):
            one, two = mine.figures[metric], theirs.figures[metric]
            if only(mine):
                if not one or not two:
                    return None
                blocks.setdefault(mine.block, []).append(log(one / two))
        if not blocks:
            return None
        mean = Mean.of([fmean(each) for each in blocks.values()])
        if mean.ci95 is None:
            return Ratio(exp(mean.mean), None, None)
        return Ratio(exp(mean.mean), exp(mean.mean - mean.ci95), exp(mean.mean + mean.ci95))

    def pairs(self) -> list[tuple[str, str, str, Ratio]]:
        """Return (metric, policy, other, ratio) for every two policies, in the order of the table."""
        order = [each.policy for each in self.table()]
        return [
            (metric, policy, other, ratio)
            for metric in RATIOS
            for policy, other in combinations(order, 2)
            if (ratio := self.ratio(policy, other, metric)) is not None
        ]

    @property
    def num_blocks(self) -> int:
        """Number of independent blocks."""
        return len({run.block for run in self.runs})

    @property
    def settings(self) -> list[tuple[float | None, str]]:
        """Loads and estimates, in the order of the runs."""
        return list(dict.fromkeys(run.setting for run in self.runs))

    def _standing(self, policy: str) -> Standing:
        mine = self._of[policy]
        guarded = [_number(run, "guarded_share") for run in mine]
        return Standing(
            policy=policy,
            times_s={metric: _geometric([_number(run, metric) for run in mine]) for metric in RATIOS},
            stops_per_job=fmean(map(stops_per_job, mine)),
            fairness=_geometric([_number(run, "avg_fairness") for run in mine]),
            worst_fairness=max(_number(run, "worst_fairness") for run in mine),
            guarded_share=fmean(guarded),
            most_guarded_share=max(guarded),
            guarded_inside_share=_mean_of(mine, "guarded_inside_share") or 0.0,
            contention={name: _mean_of(mine, name) for name in CONTENTION},
        )


def stops_per_job(run: Run) -> float:
    """Return the preemptions, moves and resizes of a run, for each of its jobs."""
    return sum(_number(run, name) for name in ("preemptions", "moves", "resizes")) / _number(run, "jobs")


def _left(run: Run) -> int:
    return int(_number(run, "jobs") - _number(run, "finished"))


def _number(run: Run, name: str) -> float:
    return float(run.figures[name] or 0)


def _mean_of(runs: Sequence[Run], name: str) -> float | None:
    """Return the mean of a figure over the runs that have it; None if none has."""
    known = [value for run in runs if (value := run.figures.get(name)) is not None]
    return fmean(known) if known else None


def _geometric(values: Sequence[float]) -> float:
    """Return the geometric mean; 0 if a value is 0."""
    return exp(fmean(map(log, values))) if min(values) > 0 else 0.0
