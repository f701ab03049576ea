"""Pair table: a job's speed is its lowest ratio beside any job that shares a node with it (contention_rl, section III).

factor(j) = min over the jobs i that share a node with j of ratio(j, i), where ratio is the throughput of j beside i over its
throughput alone: 1 / contention sensitivity. A ratio is looked up by model, GPUs and nodes of both jobs, then as
`policies.state.pair_ratios.Ratios` describes.

`single=no`: jobs on one node are neither slowed down nor slow others down, if the table measures sharing of the network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.state.pair_ratios import Pair, Ratios, key_of, medians, model_of
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Neighbours
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.profiles.model_profiles import ModelProfiles


class PairTable(Neighbours):
    """The lowest ratio among neighbours.

    Invariants: `_keys` has each running job's key in the table, '' for a job that the table does not concern. A new job is compared
    with its neighbours when it enters; a job is compared again only when its worst neighbour leaves.
    """

    def __init__(self, topology: Topology, profiles: ModelProfiles, single: bool = True) -> None:  # noqa: ARG002
        super().__init__()
        self._ratios = Ratios(profiles.pairs)
        self._default = key_of(profiles.default)
        self._in_table = frozenset(model_of(key) for pair in profiles.pairs for key in pair)
        self._single = single
        self._keys: dict[int, str] = {}

    def _entered(self, resident: Resident) -> None:
        me, keys, ratios = resident.job, self._keys, self._ratios
        mine = keys[me] = self._key(resident)
        for other in self._near(resident) if mine else ():
            if keys[other]:
                ratio = ratios.of(keys[other], mine)
                if ratio < self._factors[other]:
                    self._put(other, ratio)
        self._move_in(resident)

    def _left(self, resident: Resident) -> None:
        self._move_out(resident)
        keys = self._keys
        mine = keys.pop(resident.job)
        for other in self._near(resident) if mine else ():
            if keys[other] and self._ratios.of(keys[other], mine) <= self._factors[other] < 1.0:
                self._stale.add(other)

    def _computed(self, resident: Resident) -> float:
        me, keys, ratios = resident.job, self._keys, self._ratios
        mine = keys[me]
        if not mine:
            return 1.0
        near = self._near(resident)
        return min([ratios.of(mine, keys[other]) for other in near if keys[other] and other != me], default=1.0)

    def _near(self, resident: Resident) -> set[int]:
        """Return the jobs on its nodes."""
        near: set[int] = set()
        return near.union(*[self._on_node.get(node, ()) for node in resident.nodes])

    def _key(self, resident: Resident) -> str:
        if not self._single and len(resident.nodes) == 1:
            return ""
        model = key_of(resident.model)
        if self._default and model not in self._in_table:
            model = self._default
        return f"{model},{sum(resident.counts)},{len(resident.nodes)}"


@dataclass(frozen=True, slots=True)
class PairRow:
    """One measurement of two jobs that share nodes."""

    target: str
    """The measured job: a model, or `model,GPUs,nodes`."""
    other: str
    ratio: float
    """Its throughput over that alone."""


def fit(rows: Sequence[PairRow], seed: int = 0) -> tuple[dict[Pair, float], FitReport]:
    """Return the table of all rows (their median for each pair); the report has the error for pairs that it lacks."""
    fitted, held_out = split(rows, lambda row: row.ratio, seed)
    ratios = Ratios(_table(fitted))
    seen = report(fitted, held_out, lambda row: ratios.of(*_pair(row)), lambda row: row.ratio, seed)
    return _table(rows), seen


def _table(rows: Iterable[PairRow]) -> dict[Pair, float]:
    measured: dict[Pair, list[float]] = defaultdict(list)
    for row in rows:
        measured[_pair(row)].append(row.ratio)
    return medians(measured)


def _pair(row: PairRow) -> Pair:
    return key_of(row.target), key_of(row.other)
