"""The training setup of SCHED2's agents: 15 servers of 8 GPUs, and the paper's workload."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium

from policies.errors import TrainingError
from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.training.systems import SimulationBackend, TrainingSetup, WorkloadSpec

ENVIRONMENT = "headway/Sched2-v0"
OPTIONS = ("candidates", "window")
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


def check_columns(envs: gymnasium.vector.VectorEnv[Any, Any, Any], columns: StateColumns) -> None:
    """Raise TrainingError where the environments show other columns."""
    if envs.single_observation_space.shape != (columns.size,):
        raise TrainingError(
            f"the environments show {envs.single_observation_space}, where the state has {columns.size} numbers; make both "
            "with the same cluster and candidates"
        )
