"""Elastic jobs: throughput at the present size, relative to the requested size.

factor = X(occupied) / X(requested); the only factor that may be above 1. If a model's scaling was measured,

    X(n) ~ n / (1 + sigma (n - 1) + kappa n (n - 1))

(Gunther's universal scalability law: sigma is contention, kappa the cost of each pair). Otherwise, with the batch of a GPU fixed,
X(n) ~ n / step(n), a step that computes and then reduces over the best ring of n GPUs (links/ring.py). A job at its requested
size has factor 1 and affects no other job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import nonnegative
from simulator.slowdown.links.ring import BestRing
from simulator.slowdown.profiles.model_profiles import ModelProfiles


class Scaling(Model):
    """A job's factor depends only on its own size."""

    def __init__(self, topology: Topology, profiles: ModelProfiles) -> None:
        super().__init__()
        self._profiles = profiles
        self._best = BestRing(topology)

    def _computed(self, resident: Resident) -> float:
        occupied = sum(resident.counts)
        if occupied == resident.requested_gpus:
            return 1.0
        return self._throughput(resident, occupied) / self._throughput(resident, resident.requested_gpus)

    def _throughput(self, resident: Resident, gpus: int) -> float:
        profile = self._profiles.of(resident.model)
        if profile.scaling:
            return speedup(gpus, *profile.scaling)
        return gpus / profile.step_s(self._best.seconds(profile, gpus), resident.batch_size)


def speedup(gpus: int, sigma: float, kappa: float) -> float:
    """Return the throughput of so many GPUs over that of one."""
    return gpus / (1 + sigma * (gpus - 1) + kappa * gpus * (gpus - 1))


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One measured throughput."""

    model: str
    setting: str
    """Everything else that affects throughput (batch, kind of GPU): each setting has its own scale."""
    gpus: int
    throughput: float


def fit(rows: Sequence[ScalingRow], seed: int = 0) -> tuple[dict[str, tuple[float, float]], FitReport]:
    """Fit sigma and kappa of each model by least squares of n / throughput, which is linear in them.

    Settings of one model differ in scale: each is fitted alone, and the model's numbers are the means over its settings, weighted
    by rows. Held-out rows are predicted by the model's numbers and the scale of their setting's other rows.
    """
    fitted, held_out = split(rows, lambda row: row.throughput, seed)
    curves: dict[str, tuple[float, float]] = {}
    for model in dict.fromkeys(row.model for row in fitted):
        mine = [row for row in fitted if row.model == model]
        settings = [[row for row in mine if row.setting == name] for name in dict.fromkeys(row.setting for row in mine)]
        several = [group for group in settings if len({row.gpus for row in group}) > 2] or [mine]
        found = [(len(group), _law(group)) for group in several]
        total = sum(weight for weight, _ in found)
        curves[model] = (
            sum(weight * law[0] for weight, law in found) / total,
            sum(weight * law[1] for weight, law in found) / total,
        )

    def predicted(row: ScalingRow) -> float | None:
        like = [other for other in fitted if (other.model, other.setting) == (row.model, row.setting)]
        if not like:
            return None
        scales = [other.throughput / speedup(other.gpus, *curves[row.model]) for other in like]
        return float(np.exp(np.mean(np.log(scales)))) * speedup(row.gpus, *curves[row.model])

    return curves, report(fitted, held_out, predicted, lambda row: row.throughput, seed)


def _law(rows: Sequence[ScalingRow]) -> tuple[float, float]:
    """Return sigma and kappa of one setting."""
    per_gpu = np.array([row.gpus / row.throughput for row in rows])
    matrix = np.array([(1.0, row.gpus - 1, row.gpus * (row.gpus - 1)) for row in rows]) / per_gpu[:, None]
    base, sigma, kappa = (float(value) for value in nonnegative(matrix, np.ones(len(rows))))
    return (sigma / base, kappa / base) if base > 0 else (1.0, 0.0)
