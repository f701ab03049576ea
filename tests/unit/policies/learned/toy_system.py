"""A toy system: it learns on any ground how many nodes there are, one number at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.learned.training.run_folder import TrainingRun
from policies.learned.training.systems import Facts, Ground, Jobs, Scene, System


@dataclass(frozen=True, kw_only=True)
class Recipe:
    rounds: int = 4
    rate: float = 0.5
    mix: str = "normal"
    sizes: tuple[int, ...] = (1, 2)
    careful: bool = False
    limit: float | None = None


def scene(recipe: Recipe) -> Scene:
    return Scene(workloads=(Jobs("contention-rl", {"jobs": 12, "mix": recipe.mix, "demands": (1, 2, 4)}),))


def train(run: TrainingRun, ground: Ground, recipe: Recipe) -> None:
    weight = np.zeros(1, dtype=np.float32)
    for _ in run.rounds(recipe.rounds):
        weight += np.float32(recipe.rate) * (len(ground.gpus) - weight)
        error = float(abs(len(ground.gpus) - weight[0]))
        run.log(error=error)
        run.evaluate(error, {"weight": weight})


SYSTEM = System(
    name="toy",
    says="counts nodes",
    recipe=Recipe,
    scene=scene,
    facts=lambda _, ground: Facts("toy/1", (f"{len(ground.gpus)} nodes",)),
    train=train,
)
