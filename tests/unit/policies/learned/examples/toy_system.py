"""A toy system: it learns the number of nodes of any cluster, one number at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    CardDetails,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    rounds: int = 4
    rate: float = 0.5
    mix: str = "normal"
    sizes: tuple[int, ...] = (1, 2)
    careful: bool = False
    limit: float | None = None


def setup(recipe: Recipe) -> TrainingSetup:
    return TrainingSetup(
        workloads=(WorkloadSpec("contention-rl", {"jobs": 12, "mix": recipe.mix, "demands": (1, 2, 4)}),)
    )


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    weight = np.zeros(1, dtype=np.float32)
    for _ in run.rounds(recipe.rounds):
        weight += np.float32(recipe.rate) * (len(backend.gpus) - weight)
        error = float(abs(len(backend.gpus) - weight[0]))
        run.log(error=error)
        run.evaluate(error, {"weight": weight})


SYSTEM = TrainableSystem(
    name="toy",
    summary="counts nodes",
    recipe=Recipe,
    setup=setup,
    card=lambda _, backend: CardDetails("toy/1", (f"{len(backend.gpus)} nodes",)),
    train=train,
)
