"""Locality: a job is slower when it is spread.

A placement is in one of k = 4 tiers, from concentrated to scattered (SCHED2, section III-B): one socket, one node, one rack,
several racks. A job's factor is the value of its curve at its tier over that at the best tier for its number of GPUs in this
cluster. A job on part of one node is assumed to be on one socket if it fits there.

A model without a measured curve is slowed down by the longer time of its ring, compared with the best nodes:
step(best ring) / step(ring as placed), both alone (see links/ring.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import two_way
from simulator.slowdown.links.ring import BestRing, alone_s
from simulator.slowdown.profiles.model_profiles import Curve, ModelProfiles


class Locality(Model):
    """A job's factor depends only on its own placement: it is computed once, when the job enters."""

    def __init__(self, topology: Topology, profiles: ModelProfiles) -> None:
        super().__init__()
        self._topology = topology
        self._profiles = profiles
        self._best = BestRing(topology)

    @property
    def only_between_nodes(self) -> bool:
        """True if all nodes are alike: a job on one node then has its best tier."""
        sizes = {self._topology.group_sizes(node) for node in range(len(self._topology.gpus))}
        return len(sizes) <= 1

    def tier(self, resident: Resident) -> int:
        """Return the tier of a placement: 0 one socket, 1 one node, 2 one rack, 3 several racks."""
        nodes, racks = resident.nodes, self._topology.racks
        if len(nodes) == 1:
            return int(resident.counts[0] > self._topology.group_size(nodes[0]))
        return 2 if all(racks[node] == racks[nodes[0]] for node in nodes) else 3

    def best_tier(self, gpus: int) -> int:
        """Return the best tier for so many GPUs."""
        nodes = self._best.nodes(gpus)
        if nodes == 1:
            return int(gpus > self._best.largest_group)
        return 2 if nodes <= self._best.largest_rack else 3

    def _computed(self, resident: Resident) -> float:
        profile = self._profiles.of(resident.model)
        gpus = sum(resident.counts)
        if gpus == 1:
            return 1.0
        if profile.locality:
            return min(1.0, profile.locality[self.tier(resident)] / profile.locality[self.best_tier(gpus)])
        if len(resident.nodes) == 1:
            return 1.0
        now = profile.step_s(alone_s(self._topology, profile, resident), resident.batch_size)
        return min(1.0, profile.step_s(self._best.seconds(profile, gpus), resident.batch_size) / now)


@dataclass(frozen=True, slots=True)
class LocalityRow:
    """One measurement of a model's throughput."""

    model: str
    setting: str
    """Everything else that affects throughput (GPUs, batch, kind of GPU): rows are compared within one setting."""
    tier: int
    """Index into `TIERS`."""
    throughput: float


def fit(rows: Sequence[LocalityRow], seed: int = 0) -> tuple[dict[str, Curve], FitReport]:
    """Fit a curve for each model: log throughput = setting + tier by least squares, then made non-increasing.

    A tier without measurements gets the value of the tier before it. Held-out rows are predicted from their setting's other rows.
    """
    fitted, held_out = split(rows, lambda row: row.throughput, seed)
    found, settings = _curves(fitted)

    def predicted(row: LocalityRow) -> float | None:
        setting = settings.get((row.model, row.setting))
        return None if setting is None else exp(setting) * found[row.model][row.tier]

    return found, report(fitted, held_out, predicted, lambda row: row.throughput, seed)


def curves(rows: Sequence[LocalityRow]) -> dict[str, Curve]:
    """Return a curve for each model as `fit` does, from all rows, without an estimate of its error."""
    return _curves(rows)[0]


def compared(rows: Sequence[LocalityRow]) -> list[LocalityRow]:
    """Return the rows of settings that were measured at several tiers, because one tier alone shows no difference."""
    tiers = defaultdict(set)
    for row in rows:
        tiers[row.model, row.setting].add(row.tier)
    return [row for row in rows if len(tiers[row.model, row.setting]) > 1]


def _curves(rows: Sequence[LocalityRow]) -> tuple[dict[str, Curve], dict[tuple[str, str], float]]:
    """Return the curves, and the log throughput of every setting at the first tier."""
    tiers, settings = two_way([((row.model, row.tier), (row.model, row.setting), log(row.throughput)) for row in rows])
    found = {}
    for model in dict.fromkeys(row.model for row in rows):
        known = [tiers.get((model, tier)) for tier in range(4)]
        first = next(value for value in known if value is not None)
        falling = [0.0]
        for value in known:
            falling.append(falling[-1] if value is None else min(falling[-1], value - first))
        curve = [exp(value) for value in falling[1:]]
        found[model] = (curve[0], curve[1], curve[2], curve[3])
        for key in settings:
            if key[0] == model:
                settings[key] += first
    return found, settings
