"""Policies beside each other on the same traces: what `headway-policy evaluate` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from policies.api import Policy, load_policy, option_names, parse_policy
from policies.errors import TrainingError
from policies.learned.evaluation.statistics import Mean, changes
from policies.learned.training.recipes import recipe_of
from policies.learned.training.systems import (
    FIGURE,
    Given,
    Judged,
    Scene,
    System,
    Tell,
    find_ground,
    find_system,
    system_names,
)

METRICS = (
    *(FIGURE, "p90_jct_s", "avg_wait_s", "avg_service_s", "makespan_s", "utilization", "effectiveness"),
    *("avg_contention_sensitivity", "preemptions"),
)
"""Of all the figures of a run those that say who schedules better, the most important ones first."""
_JOBS = ("jobs", "finished")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a user wants to know."""

    policies: tuple[str, ...]
    """Each NAME[:key=value,...]; changes are told against the first."""
    given: Given
    weights: str | None = None
    """For all of them that have weights and do not say which."""
    system: str | None = None
    """Whose workloads and cluster to take for what is not given; None: that of the first learned policy among them."""
    settings: tuple[str, ...] = ()
    seeds: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it."""

    data: str
    traces: tuple[str, ...]
    seeds: int
    """Independent of each other; windows, where traces are of users."""
    figures: Mapping[str, Mapping[str, Mean | None]]
    """By policy and metric; None where a policy left jobs waiting for ever, or nothing was measured."""
    changes: Mapping[str, Mean | None]
    """Of each policy's FIGURE against that of the first, trace by trace."""
    unfinished: Mapping[str, int]
    """Jobs that each left waiting for ever."""
    notes: tuple[str, ...]


def evaluate(question: Question, tell: Tell) -> Answer:
    """Judge the policies. Raises PolicyError."""
    policies = _policies(question)
    ground = find_ground(_scene(question), question.given)
    try:
        judged = ground.judge(policies, question.seeds, tell)
    finally:
        ground.close()
    first = question.policies[0]
    return Answer(
        ground.data,
        judged.traces,
        len(judged.traces) // judged.per_seed,
        {name: {metric: _mean(judged, name, metric) for metric in METRICS} for name in policies},
        {name: _change(judged, name, first) for name in policies if name != first},
        {name: sum(_left(each) for each in judged.figures[name]) for name in policies},
        ground.notes,
    )


def as_json(answer: Answer) -> dict[str, object]:
    """For programs: every mean with half of its 95 % interval."""
    return {
        "data": answer.data,
        "traces": list(answer.traces),
        "seeds": answer.seeds,
        "policies": [
            {
                "policy": name,
                **{metric: _pair(mean) for metric, mean in figures.items()},
                "change": _pair(answer.changes.get(name)),
                "unfinished": answer.unfinished[name],
            }
            for name, figures in answer.figures.items()
        ],
    }


def _pair(mean: Mean | None) -> dict[str, float | None] | None:
    return None if mean is None else {"mean": mean.mean, "ci95": mean.ci95}


def _policies(question: Question) -> dict[str, Policy]:
    made: dict[str, Policy] = {}
    took = False
    for text in question.policies:
        if text in made:
            raise TrainingError(f"{text} is there twice; leave one out")
        name, options = parse_policy(text)
        if question.weights is not None and "weights" not in options and "weights" in option_names(name):
            options["weights"] = question.weights
            took = True
        made[text] = load_policy(name, options)
    if question.weights is not None and not took:
        raise TrainingError(f"none of {', '.join(made)} has weights; leave --weights out, or name a learned policy")
    return made


def _scene(question: Question) -> Scene:
    """That of the system asked for, else of the first learned policy; what users gave takes the place of what it says."""
    system = _system(question)
    if system is not None:
        return system.scene(recipe_of(system, question.settings))
    if question.settings:
        raise TrainingError(
            "--set is for the recipe of a system, and none is asked for; give --system, or leave it out"
        )
    if not (question.given.traces and question.given.cluster):
        there = ", ".join(system_names()) or "none is installed"
        raise TrainingError(f"what shall they run on? give --traces and --cluster, or --system ({there})")
    return Scene(workloads=())


def _system(question: Question) -> System | None:
    if question.system is not None:
        return find_system(question.system)
    names = [parse_policy(text)[0] for text in question.policies]
    learned = [name for name in names if "weights" in option_names(name)]
    # Loading a system takes as long as torch does: only for those who need it.
    systems = [find_system(name) for name in system_names()] if learned else []
    return next((system for name in learned for system in systems if name in system.policies), None)


def _left(figures: Mapping[str, int | float | None]) -> int:
    jobs, finished = (figures[name] or 0 for name in _JOBS)
    return int(jobs) - int(finished)


def _values(judged: Judged, policy: str, metric: str) -> Sequence[float] | None:
    rows = judged.figures[policy]
    values = [float(value) for row in rows if (value := row[metric]) is not None and not _left(row)]
    return values if len(values) == len(rows) and all(map(isfinite, values)) else None


def _mean(judged: Judged, policy: str, metric: str) -> Mean | None:
    values = _values(judged, policy, metric)
    return Mean.of(_by_seed(values, judged.per_seed)) if values else None


def _by_seed(values: Sequence[float], per_seed: int) -> list[float]:
    """The mean of each seed's."""
    return [fmean(values[at : at + per_seed]) for at in range(0, len(values), per_seed)]


def _change(judged: Judged, policy: str, first: str) -> Mean | None:
    mine, others = _values(judged, policy, FIGURE), _values(judged, first, FIGURE)
    if not (mine and others):
        return None
    return Mean.of(_by_seed(changes(mine, others), judged.per_seed))
