"""Training of headway-rl: the cross-entropy method (`algorithms.cross_entropy`) on the policy itself.

    generation:  draw `candidates` weights around the mean, the mean itself among them
                 run each on the same `episodes` traces (common random numbers)
                 score = mean over traces of log(JCT / the mean's) + p90 x log(p90 / the mean's)
                 mean and spread move towards those of the `elite` best

The training optimizes the reported figures: mean JCT with queueing, and its tail. A generation takes a minute or two, so it is
several rounds of the training's folder: each runs `candidates_per_round` candidates and keeps their scores. The first generation's
mean is validated too: training never ends with weights that are worse on validation than those it began with.

Where the user gives neither traces nor a cluster, training uses the recipe's setups in equal parts. Otherwise it uses what the user
gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.errors import TrainingError
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.learned.algorithms.cross_entropy import CrossEntropyMethod, Vector
from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.initial_rule import START
from policies.learned.headway_rl.network import TERMS, ValueFunction
from policies.learned.headway_rl.policy import HeadwayRl
from policies.learned.headway_rl.setups import SETUPS, USUAL, setups_of
from policies.learned.training.run.seeding import generator, seeds
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    FIGURE,
    EpisodeResult,
    SetupOverrides,
    SimulationBackend,
    TrainingSetup,
    find_backend,
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters."""

    generations: int = 14
    candidates: int = 16
    elite: int = 4
    candidates_per_round: int = 2
    """Candidates that are run in a round."""
    episodes: int = 12
    """Number of traces that every candidate of a generation is run on."""
    jobs: int = 128
    """Jobs in a trace."""
    setups: str = USUAL
    """Workloads and clusters of the training: usual or wide; without effect where the user gives traces or a cluster."""
    p90_weight: float = 0.25
    """Weight of the 90th percentile of JCT beside the mean."""
    mean_step: float = 0.6
    """Step of the mean towards that of the elite, from 0 to 1."""
    spread_step: float = 0.3
    """Step of the spread towards that of the elite, from 0 to 1."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in ("generations", "candidates", "elite", "candidates_per_round", "episodes", "jobs"):
            if not getattr(self, name) >= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.setups not in SETUPS:
            raise TrainingError(f"setups is {self.setups!r}; give one of {', '.join(SETUPS)}")
        if self.elite > self.candidates:
            raise TrainingError(
                f"elite is {self.elite}; give at most {self.candidates}, as many as there are candidates"
            )
        for name in ("mean_step", "spread_step"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        if not self.p90_weight >= 0:
            raise TrainingError(f"p90_weight is {self.p90_weight}; give 0 or more")


def search_of(recipe: Recipe) -> CrossEntropyMethod:
    """Return the search at its begin."""
    rows = np.array([START[name] for name in (*NAMES, *TERMS)])
    return CrossEntropyMethod(
        rows[:, 0].copy(), rows[:, 1].copy(), mean_step=recipe.mean_step, spread_step=recipe.spread_step
    )


def weights_of(row: Vector) -> dict[str, Vector]:
    """Return a row as the network's weights."""
    return {"linear": row[: len(NAMES)].copy(), "terms": row[len(NAMES) :].copy()}


def policy_of(row: Vector) -> HeadwayRl:
    """Return the policy with those weights."""
    return HeadwayRl(ValueFunction(weights_of(row)))


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Carry out the whole training."""
    learned = search_of(recipe)
    run.keep(distribution=learned)
    backends = _backends(backend, recipe)
    parts = -(-recipe.candidates // recipe.candidates_per_round)
    for number in run.rounds(recipe.generations * parts):
        generation, part = divmod(number, parts)
        rows = learned.draw(recipe.candidates, generator(run.card.seed, "candidates", generation))
        numbers = seeds(recipe.episodes, run.card.seed, "traces", generation)
        costs = _costs(
            backends,
            rows[part * recipe.candidates_per_round : (part + 1) * recipe.candidates_per_round],
            numbers,
            recipe,
        )
        learned.add(costs, first=part == 0)
        if number == 0:
            _validate(run, backends, learned)
        if part == parts - 1:
            best, scores = learned.best(recipe.elite)
            learned.move(rows[best])
            run.log(best=float(scores[0]), elite=float(scores.mean()), spread=float(learned.spread.mean()))
            _validate(run, backends, learned)


def _validate(run: TrainingRun, backends: Sequence[SimulationBackend], learned: CrossEntropyMethod) -> None:
    figures = validated(backends, policy_of(learned.mean))
    run.evaluate(figures[FIGURE], weights_of(learned.mean), **figures)


def validated(backends: Sequence[SimulationBackend], policy: HeadwayRl | ContentionGreedy) -> dict[str, float]:
    """Return geometric means over the backends."""
    each = [backend.validate(policy) for backend in backends]
    return {name: math.exp(float(np.mean([math.log(max(one[name], 1e-9)) for one in each]))) for name in each[0]}


def _costs(backends: Sequence[SimulationBackend], rows: Vector, numbers: Sequence[int], recipe: Recipe) -> Vector:
    """Return the costs, a row for each candidate and a column for each trace; less is better."""
    costs = np.zeros((len(rows), len(numbers)))
    for place, backend in enumerate(backends):
        mine = range(place, len(numbers), len(backends))
        pairs = [(row, episode) for row in range(len(rows)) for episode in mine]
        played = backend.play([policy_of(rows[row]) for row, _ in pairs], [numbers[episode] for _, episode in pairs])
        for (row, episode), one in zip(pairs, played, strict=True):
            costs[row, episode] = _log_cost(one, recipe)
    return costs


def _log_cost(played: EpisodeResult, recipe: Recipe) -> float:
    jct_s = played.jct_s
    return math.log(float(jct_s.mean())) + recipe.p90_weight * math.log(float(np.quantile(jct_s, 0.9)))


def setup(recipe: Recipe) -> TrainingSetup:
    """Return the first setup of the recipe, which the user may replace."""
    return setups_of(recipe.setups, recipe.jobs)[0]


def default_backends(recipe: Recipe) -> list[SimulationBackend]:
    """Return the backends of a training for which the user gives neither traces nor a cluster."""
    return [find_backend(each, SetupOverrides()) for each in setups_of(recipe.setups, recipe.jobs)]


def _backends(backend: SimulationBackend, recipe: Recipe) -> list[SimulationBackend]:
    """Return that backend, and the other default ones if it is the first of them."""
    first, *rest = default_backends(recipe)
    return [backend, *rest] if backend.data_sha256 == first.data_sha256 else [backend]
