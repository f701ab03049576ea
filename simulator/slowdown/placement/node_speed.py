"""Nodes of different speed: a gang is as fast as its slowest node.

factor = min over the job's nodes of speed(node) / speed of the cluster's fastest node. Trace durations mean the fastest.
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

    def __init__(self, topology: Topology, profiles: ModelProfiles) -> None:  # noqa: ARG002
        super().__init__()
        fastest = max(topology.speed, default=1.0)
        self._speed = tuple(speed / fastest for speed in topology.speed) or (1.0,) * topology.num_nodes

    def _computed(self, resident: Resident) -> float:
        return min(self._speed[node] for node in resident.nodes)


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
