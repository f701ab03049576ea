"""How headway-rl is trained: the cross-entropy method on the policy itself (Rubinstein, "The cross-entropy method for combinatorial
and continuous optimization", 1999; as policy search: Mannor, Rubinstein and Gat, ICML 2003).

    generation:  draw `candidates` weights around the mean, the mean itself among them
                 run each on the same `episodes` traces (common random numbers)
                 score = mean over traces of log(JCT / the mean's) + p90 x log(p90 / the mean's)
                 mean and spread move towards those of the `elite` best

What is optimized is what is reported: mean JCT with queueing, and its tail. A generation takes minutes, so it is several rounds of
the training's folder: `at_once` candidates are run in each, and their scores kept. The first generation's mean is validated too:
training never ends with weights that are worse on validation than those it began with.

Training goes on two clusters in equal parts, one rack of 4x8 and two of them whose uplinks are oversubscribed 2:1, where users give
neither traces nor a cluster; otherwise on what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.errors import TrainingError
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.learned.headway_rl.features import NAMES
from policies.learned.headway_rl.network import TERMS, Network
from policies.learned.headway_rl.policy import HeadwayRl
from policies.learned.run import TrainingRun
from policies.learned.seeding import generator, seeds
from policies.learned.systems import FIGURE, Given, Ground, Jobs, Played, Scene, find_ground

Vector = npt.NDArray[np.float64]

START: Mapping[str, tuple[float, float]] = {
    "remaining": (-0.4, 0.08),
    "gpus": (1.0, 0.08),
    "waited": (0.22, 0.04),
    "at_stake": (0.2, 0.1),
    "runs": (0.03, 0.03),
    "pressure": (0.0, 0.0),
    "share": (-0.3, 0.12),
    "odd": (0.18, 0.06),
    "wide": (0.36, 0.08),
    "remaining_pressure": (0.04, 0.03),
    "gpus_pressure": (0.01, 0.03),
    "at_stake_pressure": (0.01, 0.04),
    "waited_gpus": (-0.18, 0.04),
    "bulk": (0.55, 0.08),
    "threshold": (0.36, 0.08),
    "log_stop": (-3.9, 0.4),
}
"""Of every weight the first mean and spread. The means were found by hand, and then by this same method with 24 candidates on 40
traces a round, training seeds 0 to 39 of `tests.bench.contention`, in a compiled copy of the simulator. The pressure alone is the
same for all jobs of a moment, and decides nothing."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters."""

    generations: int = 2
    candidates: int = 12
    elite: int = 3
    at_once: int = 2
    """Candidates of a round."""
    episodes: int = 8
    """Traces that every candidate of a generation is run on."""
    jobs: int = 256
    """Of a trace."""
    p90: float = 0.25
    """Weight of the 90th percentile of JCT beside the mean."""
    mean_step: float = 0.5
    """How far the mean goes to that of the elite."""
    spread_step: float = 0.3
    """And the spread."""

    def __post_init__(self) -> None:
        """Raises TrainingError for numbers that cannot be."""
        for name in ("generations", "candidates", "elite", "at_once", "episodes", "jobs"):
            if not getattr(self, name) >= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.elite > self.candidates:
            raise TrainingError(
                f"elite is {self.elite}; give at most {self.candidates}, as many as there are candidates"
            )
        for name in ("mean_step", "spread_step"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        if not self.p90 >= 0:
            raise TrainingError(f"p90 is {self.p90}; give 0 or more")


class Distribution:
    """Of weights: independent normal ones. Invariant: `mean`, `spread` and the costs of this generation's candidates so far are all
    that goes on from round to round."""

    def __init__(self) -> None:
        rows = [START[name] for name in (*NAMES, *TERMS)]
        self.mean: Vector = np.array([mean for mean, _ in rows])
        self.spread: Vector = np.array([spread for _, spread in rows])
        self.costs: Vector = np.zeros((0, 0))
        """A row for each candidate, a column for each trace."""

    def draw(self, count: int, rng: np.random.Generator) -> Vector:
        """So many, a row each; the first is the mean."""
        rows = self.mean + self.spread * rng.standard_normal((count, len(self.mean)))
        rows[0] = self.mean
        return np.asarray(rows)

    def move(self, elite: Vector, recipe: Recipe) -> None:
        """Towards these."""
        spread = np.sqrt(np.mean((elite - self.mean) ** 2, axis=0))
        self.spread = self.spread + recipe.spread_step * (spread - self.spread)
        self.mean = self.mean + recipe.mean_step * (elite.mean(axis=0) - self.mean)

    def state_dict(self) -> dict[str, Vector]:
        """All there is."""
        return {"mean": self.mean.copy(), "spread": self.spread.copy(), "costs": self.costs.copy()}

    def load_state_dict(self, state_dict: Mapping[str, Vector], /) -> None:
        """Go on from there."""
        self.mean, self.spread, self.costs = (state_dict[name].copy() for name in ("mean", "spread", "costs"))


def weights_of(row: Vector) -> dict[str, Vector]:
    """As the network has them."""
    return {"linear": row[: len(NAMES)].copy(), "terms": row[len(NAMES) :].copy()}


def policy_of(row: Vector) -> HeadwayRl:
    """The policy of those weights."""
    return HeadwayRl.of(Network(weights_of(row)))


def train(run: TrainingRun, ground: Ground, recipe: Recipe) -> None:
    """The whole training, in its folder."""
    learned = Distribution()
    run.keep(distribution=learned)
    grounds = _grounds(ground, recipe)
    parts = -(-recipe.candidates // recipe.at_once)
    for number in run.rounds(recipe.generations * parts):
        generation, part = divmod(number, parts)
        rows = learned.draw(recipe.candidates, generator(run.card.seed, "candidates", generation))
        numbers = seeds(recipe.episodes, run.card.seed, "traces", generation)
        costs = _costs(grounds, rows[part * recipe.at_once : (part + 1) * recipe.at_once], numbers, recipe)
        learned.costs = costs if part == 0 else np.concatenate((learned.costs, costs))
        if number == 0:
            _validate(run, grounds, learned)
        if part == parts - 1:
            scores = (learned.costs - learned.costs[0]).mean(axis=1)
            best = np.argsort(scores, kind="stable")[: recipe.elite]
            learned.move(rows[best], recipe)
            run.log(best=float(scores[best[0]]), elite=float(scores[best].mean()), spread=float(learned.spread.mean()))
            _validate(run, grounds, learned)


def _validate(run: TrainingRun, grounds: Sequence[Ground], learned: Distribution) -> None:
    figures = validated(grounds, policy_of(learned.mean))
    run.evaluate(figures[FIGURE], weights_of(learned.mean), **figures)


def validated(grounds: Sequence[Ground], policy: HeadwayRl | ContentionGreedy) -> dict[str, float]:
    """Geometric means over the grounds."""
    each = [ground.validate(policy) for ground in grounds]
    return {name: math.exp(float(np.mean([math.log(max(one[name], 1e-9)) for one in each]))) for name in each[0]}


def _costs(grounds: Sequence[Ground], rows: Vector, numbers: Sequence[int], recipe: Recipe) -> Vector:
    """A row for each candidate, a column for each trace; less is better."""
    costs = np.zeros((len(rows), len(numbers)))
    for place, ground in enumerate(grounds):
        mine = range(place, len(numbers), len(grounds))
        pairs = [(row, episode) for row in range(len(rows)) for episode in mine]
        played = ground.play([policy_of(rows[row]) for row, _ in pairs], [numbers[episode] for _, episode in pairs])
        for (row, episode), one in zip(pairs, played, strict=True):
            costs[row, episode] = _log_cost(one, recipe)
    return costs


def _log_cost(played: Played, recipe: Recipe) -> float:
    jct_s = played.jct_s
    return math.log(float(jct_s.mean())) + recipe.p90 * math.log(float(np.quantile(jct_s, 0.9)))


def scene(recipe: Recipe, racks: int = 2) -> Scene:
    """The issue's settings: demands 1 to 32, Poisson arrivals, both mixes; loads around 0.9."""
    workloads = tuple(
        Jobs(
            "contention-rl",
            {
                "jobs": recipe.jobs,
                "arrivals": "poisson",
                "load": load,
                "mix": mix,
                "demands": tuple(range(1, 33)),
            },
        )
        for load in (0.9, 0.7, 1.1)
        for mix in ("normal", "heavy")
    )
    nodes = [{"count": 4, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]
    network = {"kind": "racks", "nic_gbs": 12.5, "uplink_gbs": 25.0}
    return Scene(
        workloads=workloads,
        cluster={"nodes": nodes, "network": network},
        slowdown=("link-sharing",),
        validation_seeds=range(200, 202),
    )


def usual(recipe: Recipe) -> list[Ground]:
    """What is trained on where users give nothing: two racks, and one."""
    return [find_ground(scene(recipe, racks), Given()) for racks in (2, 1)]


def _grounds(ground: Ground, recipe: Recipe) -> list[Ground]:
    """That one; and one rack beside the two, where users gave nothing."""
    two, one = usual(recipe)
    return [ground, one] if ground.data_sha256 == two.data_sha256 else [ground]
