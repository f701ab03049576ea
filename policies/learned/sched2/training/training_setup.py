"""The training setup of SCHED2's agents: 15 servers of 8 GPUs, and the paper's workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium

from policies.errors import TrainingError
from policies.learned.sched2.encoder import NAME, Encoding, settings
from policies.learned.sched2.state.kinds import EFFECTIVENESS
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.training.systems import FIGURE, CardDetails, SimulationBackend, TrainingSetup, WorkloadSpec

ENVIRONMENT = "headway/Sched2-v0"
OPTIONS = ("candidates", "window")
HOUR_S = 3600.0
"""The environments' unit of time."""
"""Options of the environment that give observations and actions their meaning."""


class Settings(Protocol):
    """Fields that the recipes share."""

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Mean seconds between two submits, by workload."""

    @property
    def candidates(self) -> int:
        """J."""

    @property
    def window(self) -> str:
        """The J jobs that can be chosen."""

    @property
    def reward(self) -> str:
        """The kind of reward."""

    @property
    def envs(self) -> int:
        """Number of environments."""


def paper_setup(recipe: Settings) -> TrainingSetup:
    """Return 15 servers of 8 GPUs, and the paper's workload at the recipe's gaps."""
    return TrainingSetup(
        workloads=tuple(WorkloadSpec("sched2", {"mean_gap_s": gap_s}) for gap_s in recipe.gaps_s),
        cluster="15x8",
        papers=("sched2",),
        window=1000,
        validation_seeds=range(500, 530),
    )


def encoding_for(recipe: Settings, backend: SimulationBackend) -> Encoding:
    """Return the encoding for that backend's cluster."""
    return Encoding(
        num_nodes=len(backend.gpus),
        gpus_per_node=max(backend.gpus),
        candidates=recipe.candidates,
        window=recipe.window,
    )


def card_details(recipe: Settings, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries."""
    encoding = encoding_for(recipe, backend)
    return CardDetails(encoder=NAME, shapes=(encoding.supports,), settings=settings(encoding, recipe))


def envs_for(recipe: Settings, backend: SimulationBackend, **more: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return the environments of the training; `more` are options that only one recipe has."""
    return backend.envs(
        ENVIRONMENT,
        recipe.envs,
        candidates=recipe.candidates,
        window=recipe.window,
        reward=recipe.reward,
        round_s=HOUR_S,
        **more,
    )


def figure_of(recipe: Settings, figures: Mapping[str, float]) -> float:
    """Return the figure of a validation that the training makes as small as it can."""
    return -figures["effectiveness"] if recipe.reward == EFFECTIVENESS else figures[FIGURE]


def check_columns(envs: gymnasium.vector.VectorEnv[Any, Any, Any], columns: StateColumns) -> None:
    """Raise TrainingError where the environments show other columns."""
    if envs.single_observation_space.shape != (columns.size,):
        raise TrainingError(
            f"the environments show {envs.single_observation_space}, where the state has {columns.size} numbers; make both "
            "with the same cluster and candidates"
        )
