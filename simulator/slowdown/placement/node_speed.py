"""Nodes of different speed: a gang is as fast as its slowest node.

factor = min over the job's nodes of speed(node) / speed of the cluster's fastest node. Trace durations mean the fastest.

`sensitivity=profile`: models feel the share s of it that their profile has (`speed_sensitivity`). A step on a node takes
1 + s (fastest / speed(node) - 1) times as long, as classes of jobs differ in PAL (Jain et al., SC 24). `all`, the default: s = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import two_way
from simulator.slowdown.profiles.model_profiles import ModelProfiles


class NodeSpeed(Model):
    """A job's factor depends only on its own nodes."""

    def __init__(self, topology: Topology, profiles: ModelProfiles, sensitivity: str = "all") -> None:
        super().__init__()
        self._profiles = profiles if sensitivity == "profile" else None
        fastest = max(topology.speed, default=1.0)
        self._speed = tuple(speed / fastest for speed in topology.speed) or (1.0,) * topology.num_nodes

    def _computed(self, resident: Resident) -> float:
        slowest = min(self._speed[node] for node in resident.nodes)
        if self._profiles is None:
            return slowest
        return 1.0 / (1.0 + self._profiles.of(resident.model).speed_sensitivity * (1.0 / slowest - 1.0))

    @property
    def by_profile(self) -> bool:
        """True if models feel different shares of the difference."""
        return self._profiles is not None


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One measurement of a model on one kind of GPU, with everything else equal."""

    kind: str
    model: str
    throughput: float


def fit(rows: Sequence[SpeedRow], seed: int = 0) -> tuple[dict[str, float], FitReport]:
    """Fit the speed of every kind relative to the fastest: log throughput = kind + model, by least squares."""
    fitted, held_out = split(rows, lambda row: row.throughput, seed)
    kinds, models = two_way([(row.kind, row.model, log(row.throughput)) for row in fitted])

    def predicted(row: SpeedRow) -> float | None:
        if row.kind not in kinds or row.model not in models:
            return None
        return exp(kinds[row.kind] + models[row.model])

    fastest = max(kinds.values())
    speeds = {kind: exp(value - fastest) for kind, value in kinds.items()}
    return speeds, report(fitted, held_out, predicted, lambda row: row.throughput, seed)
