"""An experiment: several policies on the same workloads in several settings, and the results of every run.

results = perform(experiment, seeds=range(1000, 1005), on_progress=bar)
results.rows()       # every figure: policy, setting, metric, mean, half of its 95 % interval
results.findings()   # every claim: the paper's figure, the result here, whether the claim holds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from policies.api import Policy, load_policy, parse_policy
from policies.learned.evaluation.statistics import Mean, change
from policies.model import FloatColumn
from simulator.cluster.cluster import Cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError, SimulatorError
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.process_pool import in_parallel, total_of
from simulator.runs.progress import OnProgress, drive
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S, Trace


class Kind(Enum):
    """The role of a contender in an experiment."""

    OURS = "learned"
    BASELINE = "baseline of the paper"
    CONTROL = "control"
    BOUND = "lower bound"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run."""

    of: Callable[[Result], float | None]
    says: str
    lower: bool = True
    """True if a smaller value is better."""


METRICS: Mapping[str, Metric] = {
    "avg_jct_s": Metric(metrics.average_jct_s, "average JCT, queueing included"),
    "p90_jct_s": Metric(lambda result: metrics.percentile_jct_s(result, 90), "p90 JCT, queueing included"),
    "avg_service_s": Metric(metrics.average_service_s, "average running time"),
    "p90_service_s": Metric(
        lambda result: metrics.percentile(result.service_ns / NS_PER_S, 90), "p90 of running times"
    ),
    "avg_wait_s": Metric(metrics.average_wait_s, "average wait"),
    "makespan_s": Metric(metrics.makespan_s, "makespan"),
    "effectiveness": Metric(metrics.effectiveness, "execution effectiveness", lower=False),
    "utilization": Metric(metrics.utilization, "share of GPU time in use", lower=False),
    "avg_contention_sensitivity": Metric(
        lambda result: float(metrics.contention_sensitivity(result).mean()), "contention sensitivity"
    ),
}
"""Metrics by their names in tables."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A cluster, a workload, and how jobs slow each other down."""

    name: str
    says: str
    trace: Callable[[int], Trace]
    """Makes the trace of a seed."""
    cluster: Cluster
    slowdown: tuple[str, ...]
    """Slowdown models, written as for `--slowdown`."""
    profiles: ModelProfiles
    metrics: tuple[str, ...] = ()
    """Metrics that its table shows; empty: those of the experiment."""


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run."""

    figures: Mapping[str, float]
    samples: Mapping[str, FloatColumn] = field(default_factory=dict)
    """Samples from which pictures are drawn."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy, rule or bound that takes part. `run` raises SimulatorError, PolicyError."""

    name: str
    kind: Kind
    run: Callable[[Setting, int, OnProgress | None], Run]
    """Runs it in a setting, on the trace of a seed."""


Sampler: TypeAlias = Callable[[Result], Mapping[str, FloatColumn]]


def policy(
    text: str,
    kind: Kind,
    sampler: Sampler | None = None,
    *,
    name: str | None = None,
    measures: Mapping[str, Metric] = METRICS,
    record: bool = False,
) -> Contender:
    """Return the policy NAME[:key=value,...] as a contender. With a sampler or `record`, its runs are recorded."""
    return scheduled(
        name or text, kind, lambda: load_policy(*parse_policy(text)), sampler, measures=measures, record=record
    )


def scheduled(
    name: str,
    kind: Kind,
    make: Callable[[], Policy],
    sampler: Sampler | None = None,
    *,
    measures: Mapping[str, Metric] = METRICS,
    record: bool = False,
) -> Contender:
    """Return as a contender the policy that `make` makes for each run. With a sampler or `record`, its runs are recorded."""

    def run(setting: Setting, seed: int, on_progress: OnProgress | None) -> Run:
        models = build(setting.slowdown, topology=setting.cluster.topology, profiles=setting.profiles)
        settings = Settings(record=record or sampler is not None)
        simulation = Simulation(setting.trace(seed), setting.cluster, make(), settings, models, setting.profiles)
        drive(simulation, on_progress)
        return run_of(simulation, f"{name} in {setting.name}, seed {seed}", sampler, measures)

    return Contender(name, kind, run)


def run_of(simulation: Simulation, what: str, sampler: Sampler | None, measures: Mapping[str, Metric] = METRICS) -> Run:
    """Return the results of a simulation that has ended. Raises SimulatorError if jobs are left: they would have no JCT."""
    result = Result.of(simulation, what, 0.0)
    if not result.done.all():
        raise SimulatorError(f"{what}: left {int((~result.done).sum())} of {len(result)} jobs unfinished")
    figures = {name: float(figure) for name, metric in measures.items() if (figure := metric.of(result)) is not None}
    return Run(figures, {} if sampler is None else sampler(result))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that one contender is better than the best of others, by a relative change (-0.1: a tenth less) or by a factor.

    With no others, the claim is about the figure itself, which `factor` then shows as a ratio.
    """

    name: str
    setting: str
    metric: str
    ours: str
    against: tuple[str, ...]
    paper: float | None
    """The paper's figure; None if it gives none."""
    goal: float
    """The value that must be reached for the claim to hold; where it is no change against others, it must be surpassed."""
    factor: bool = False

    @property
    def is_any_gain(self) -> bool:
        """True if any gain over others is enough, however small, but equal results are not."""
        return bool(self.against) and self.goal == (1.0 if self.factor else 0.0)


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The result for a claim: the mean over seeds, compared pair by pair."""

    claim: Claim
    against: str
    """The contender with the best mean among those of the claim; empty where the claim has none."""
    ours: Mean
    holds: bool
    """True if the whole 95 % interval reaches the goal; False with a single seed, which has no interval."""
    mean_holds: bool
    """True if the mean reaches the goal."""

    def as_json(self) -> dict[str, object]:
        """Return the finding as values that JSON has."""
        claim = self.claim
        result = {"name": claim.name, "paper": claim.paper, "ours": self.ours.mean, "ci95": self.ours.ci95}
        holds = {"holds": self.holds, "mean_holds": self.mean_holds}
        more = {"setting": claim.setting, "metric": claim.metric, "policy": claim.ours, "against": self.against}
        return {**result, **holds, "goal": claim.goal, "factor": claim.factor, **more}


@dataclass(frozen=True, slots=True)
class MoreFigures:
    """One more table of a setting."""

    setting: str
    says: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Contenders in settings, and claims about their results. Invariant: the contenders of a claim take part in its setting."""

    name: str
    says: str
    settings: tuple[Setting, ...]
    contenders: Mapping[str, tuple[Contender, ...]]
    """Contenders of each setting."""
    metrics: tuple[str, ...]
    """Metrics that the table of each setting shows, if the setting names none; the JSON has all."""
    measures: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
    more_tables: tuple[MoreFigures, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks for the reader."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Other results for the JSON, as values that it can have: learning curves, times, and the places of results elsewhere."""

    def only(self, words: str) -> Experiment:
        """Return the part with the setting of that name, or else those whose names contain these words.

        Raises SettingError, which lists the names.
        """
        exact = tuple(each for each in self.settings if each.name == words)
        settings = exact or tuple(each for each in self.settings if words in each.name)
        if not settings:
            names = "; ".join(each.name for each in self.settings)
            raise SettingError(f"{self.name} has no setting with {words!r} in its name; its settings: {names}")
        names_left = {each.name for each in settings}
        return replace(
            self,
            settings=settings,
            contenders={name: self.contenders[name] for name in self.contenders if name in names_left},
            more_tables=tuple(table for table in self.more_tables if table.setting in names_left),
            claims=tuple(claim for claim in self.claims if claim.setting in names_left),
        )


@dataclass(frozen=True, slots=True)
class ExperimentResults:
    """Runs by setting and contender, one for each seed in their order."""

    experiment: Experiment
    seeds: tuple[int, ...]
    runs: Mapping[tuple[str, str], Sequence[Run]]

    def values(self, setting: str, contender: str, metric: str) -> list[float]:
        """Return a figure for every seed; empty where the contender has no such figure."""
        return [run.figures[metric] for run in self.runs[setting, contender] if metric in run.figures]

    def mean(self, setting: str, contender: str, metric: str) -> Mean | None:
        """Return the mean of a figure over seeds; None where the contender has no such figure."""
        values = self.values(setting, contender, metric)
        return Mean.of(values) if values else None

    def rows(self) -> list[dict[str, object]]:
        """Return every mean, as values that JSON has."""
        return [
            {"policy": name, "setting": setting, "metric": metric, "value": mean.mean, "ci95": mean.ci95}
            for setting, name in self.runs
            for metric in self.experiment.measures
            if (mean := self.mean(setting, name, metric)) is not None
        ]

    def findings(self) -> list[ClaimFinding]:
        """Return the result for every claim."""
        return [self._finding(claim) for claim in self.experiment.claims]

    def _finding(self, claim: Claim) -> ClaimFinding:
        lower = self.experiment.measures[claim.metric].lower
        if not claim.against:
            return _finding(claim, "", Mean.of(self.values(claim.setting, claim.ours, claim.metric)), lower=lower)
        others = {name: self.values(claim.setting, name, claim.metric) for name in claim.against}
        best = min(others, key=lambda name: sum(others[name]) if lower else -sum(others[name]))
        ours = self.values(claim.setting, claim.ours, claim.metric)
        if claim.factor:
            pairs = zip(ours, others[best], strict=True)
            found = Mean.of([other / mine if lower else mine / other for mine, other in pairs])
            return _finding(claim, best, found, lower=False)
        return _finding(claim, best, change(ours, others[best]), lower=lower)


def _finding(claim: Claim, against: str, found: Mean, *, lower: bool) -> ClaimFinding:
    """Return whether mean and interval reach the claim's goal; `lower`: from above."""
    sign = -1.0 if lower else 1.0
    missing = sign * (claim.goal - found.mean)

    def reached(short: float) -> bool:
        return short < 0.0 if claim.is_any_gain else short <= 0.0

    return ClaimFinding(
        claim, against, found, found.ci95 is not None and reached(missing + found.ci95), reached(missing)
    )


def perform(
    experiment: Experiment, seeds: Sequence[int], on_progress: OnProgress, processes: int | None = None
) -> ExperimentResults:
    """Run every contender in every setting, in several processes. Raises SimulatorError."""
    work = {
        f"{contender.name} in {setting.name}": (setting, contender)
        for setting in experiment.settings
        for contender in experiment.contenders[setting.name]
    }

    def do(label: str, report: OnProgress) -> list[Run]:
        setting, contender = work[label]
        return [
            contender.run(setting, seed, lambda share, at=at: report((at + share) / len(seeds)))  # type: ignore[misc]
            for at, seed in enumerate(seeds)
        ]

    found = in_parallel(list(work), do, total_of(work, on_progress), processes)
    keys = [(setting.name, contender.name) for setting, contender in work.values()]
    return ExperimentResults(experiment, tuple(seeds), dict(zip(keys, found, strict=True)))
