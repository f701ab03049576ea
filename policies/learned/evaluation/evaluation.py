"""Comparison of policies on the same traces, as `headway-policy evaluate` does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean

from policies.api import load_policy, option_names, parse_policy
from policies.errors import TrainingError
from policies.learned.evaluation.statistics import Mean, changes, mean_as_json
from policies.learned.training.agents import Scheduler
from policies.learned.training.recipes import recipe_of
from policies.learned.training.systems import (
    FIGURE,
    TRAINED,
    Comparison,
    OnProgress,
    SetupOverrides,
    TrainableSystem,
    TrainingSetup,
    find_backend,
    find_system,
    system_names,
    trained_agent,
)

METRICS = (
    *(FIGURE, "p90_jct_s", "avg_wait_s", "avg_service_s", "makespan_s", "utilization", "effectiveness"),
    *("avg_contention_sensitivity", "preemptions", "p99_jct_s", "guarded_share", "carried_avg_s"),
)
"""The figures that compare schedules, the most important first."""
_JOBS = ("jobs", "finished")


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """The policies to compare, and the traces and cluster to compare them on."""

    policies: tuple[str, ...]
    """Each NAME[:key=value,...], or agent:system=NAME,weights=FOLDER for an agent in its environment. Changes are relative to the
    first."""
    overrides: SetupOverrides
    weights: str | None = None
    """Folder of weights, for the policies that take weights and do not name any."""
    system: str | None = None
    """System whose workloads and cluster are used where the user gives none; None: that of the first learned policy."""
    settings: tuple[str, ...] = ()
    seeds: int | None = None
    parsed: Mapping[str, tuple[str, Mapping[str, object]]] = field(default_factory=dict)
    """Name and options of those of `policies` that are only labels: their texts are not read."""

    def parse(self, text: str) -> tuple[str, dict[str, object]]:
        """Return name and options of one of `policies`. Raises PolicyLoadError."""
        if text not in self.parsed:
            return parse_policy(text)
        name, options = self.parsed[text]
        return name, dict(options)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of a comparison."""

    data: str
    traces: tuple[str, ...]
    seeds: int
    """Number of independent seeds; of runs, where traces are the user's."""
    figures: Mapping[str, Mapping[str, Mean | None]]
    """Means by policy and metric; None where a policy never started some jobs, or nothing was measured."""
    changes: Mapping[str, Mean | None]
    """Changes of each policy's FIGURE against that of the first, trace by trace."""
    unfinished: Mapping[str, int]
    """Number of jobs that each policy never started."""
    notes: tuple[str, ...]
    says: str = ""
    """How the runs begin and end, in a sentence."""


def evaluate(request: EvaluationRequest, on_progress: OnProgress) -> Evaluation:
    """Compare the policies. Raises PolicyError."""
    policies = _policies(request)
    backend = find_backend(_setup(request), request.overrides)
    try:
        comparison = backend.compare(policies, request.seeds, on_progress)
    finally:
        backend.close()
    first = request.policies[0]
    return Evaluation(
        backend.data,
        comparison.traces,
        len(comparison.traces) // comparison.per_seed,
        {name: {metric: _mean(comparison, name, metric) for metric in METRICS} for name in policies},
        {name: _change(comparison, name, first) for name in policies if name != first},
        {name: sum(_left(each) for each in comparison.figures[name]) for name in policies},
        comparison.notes,
        comparison.says,
    )


def as_json(answer: Evaluation) -> dict[str, object]:
    """Return the results for programs: every mean with half of its 95 % interval."""
    return {
        "data": answer.data,
        "traces": list(answer.traces),
        "seeds": answer.seeds,
        "runs": answer.says,
        "policies": [
            {
                "policy": name,
                **{metric: mean_as_json(mean) for metric, mean in figures.items()},
                "change": mean_as_json(answer.changes.get(name)),
                "unfinished": answer.unfinished[name],
            }
            for name, figures in answer.figures.items()
        ],
    }


def _policies(request: EvaluationRequest) -> dict[str, Scheduler]:
    made: dict[str, Scheduler] = {}
    took = False
    for text in request.policies:
        if text in made:
            raise TrainingError(f"{text} is given twice; leave one out")
        name, options = request.parse(text)
        if name == TRAINED:
            made[text] = trained_agent(text, options)
            continue
        if request.weights is not None and "weights" not in options and "weights" in option_names(name):
            options["weights"] = request.weights
            took = True
        made[text] = load_policy(name, options)
    if request.weights is not None and not took:
        raise TrainingError(f"none of {', '.join(made)} has weights; leave --weights out, or name a learned policy")
    return made


def _setup(request: EvaluationRequest) -> TrainingSetup:
    """Return the setup of the given system, else of the first learned policy; what the user gave replaces parts of it."""
    system = _system(request)
    if system is not None:
        return system.setup(recipe_of(system, request.settings))
    if request.settings:
        raise TrainingError(
            "--set changes the recipe of a system, and no system is given; give --system, or leave --set out"
        )
    if not (request.overrides.traces and request.overrides.cluster):
        there = ", ".join(system_names()) or "none is installed"
        raise TrainingError(
            f"there is nothing to run the policies on; give --traces and --cluster, or --system ({there})"
        )
    return TrainingSetup(workloads=())


def _system(request: EvaluationRequest) -> TrainableSystem | None:
    if request.system is not None:
        return find_system(request.system)
    parsed = [request.parse(text) for text in request.policies]
    for name, options in parsed:
        if name == TRAINED:
            return find_system(str(options["system"]))
    names = [name for name, _ in parsed]
    learned = [name for name in names if "weights" in option_names(name)]
    # Loading a system takes as long as importing torch, so it is done only if a policy is learned.
    systems = [find_system(name) for name in system_names()] if learned else []
    return next((system for name in learned for system in systems if name in system.policies), None)


def _left(figures: Mapping[str, int | float | None]) -> int:
    jobs, finished = (figures[name] or 0 for name in _JOBS)
    return int(jobs) - int(finished)


def _values(comparison: Comparison, policy: str, metric: str) -> Sequence[float] | None:
    rows = comparison.figures[policy]
    values = [float(value) for row in rows if (value := row[metric]) is not None and not _left(row)]
    return values if len(values) == len(rows) and all(map(isfinite, values)) else None


def _mean(comparison: Comparison, policy: str, metric: str) -> Mean | None:
    values = _values(comparison, policy, metric)
    return Mean.of(_by_seed(values, comparison.per_seed)) if values else None


def _by_seed(values: Sequence[float], per_seed: int) -> list[float]:
    """Return the mean of each seed's values."""
    return [fmean(values[at : at + per_seed]) for at in range(0, len(values), per_seed)]


def _change(comparison: Comparison, policy: str, first: str) -> Mean | None:
    mine, others = _values(comparison, policy, FIGURE), _values(comparison, first, FIGURE)
    if not (mine and others):
        return None
    return Mean.of(_by_seed(changes(mine, others), comparison.per_seed))
