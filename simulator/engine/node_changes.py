"""Failures, drains and returns of nodes: as listed, or drawn at random from a seed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

import numpy as np

from simulator.cluster.cluster import Cluster
from simulator.engine.settings import NodeChange
from simulator.errors import SettingError
from simulator.kernel.constants import NEVER
from simulator.kernel.loop import Loop
from simulator.traces.trace import MAX_TIME_S, NS_PER_S

CHANGES = ("down", "drain", "up")


class NodeChangeSchedule:
    """Changes of nodes in order of time; several changes at one instant are applied in the order given.

    Invariant: everything before `next_ns` has been applied.
    """

    def __init__(self, changes: tuple[NodeChange, ...], cluster: Cluster) -> None:
        """Raises SettingError for an impossible change."""
        for change in changes:
            possible = 0 <= change.node < len(cluster.gpus) and 0 <= change.time_s <= MAX_TIME_S
            if change.change not in CHANGES or not possible:
                raise SettingError(
                    f"{change}: a change is one of {', '.join(CHANGES)}, at a time of 0 s or later, "
                    f"of a node from 0 to {len(cluster.gpus) - 1}"
                )
        self._changes = sorted(changes, key=lambda change: change.time_s)
        self._next = 0

    @property
    def next_ns(self) -> int:
        """Time of the next change, ns; NEVER if there is none."""
        if self._next == len(self._changes):
            return NEVER
        return round(self._changes[self._next].time_s * NS_PER_S)

    def apply(self, loop: Loop) -> None:
        """Apply the changes that are due."""
        while self.next_ns <= loop.now:
            change = self._changes[self._next]
            self._next += 1
            if change.change == "up":
                loop.pool.set_up(change.node, 1)
                continue
            loop.pool.set_up(change.node, 0)
            if change.change == "down":
                for job in [job for job in loop.running if change.node in job.nodes]:
                    loop.fail(job)

    def fork(self) -> Self:
        """Return an independent copy that continues from here."""
        return copy.copy(self)


def draw_failures(
    cluster: Cluster, until_s: float, mean_time_to_failure_s: float, mean_time_to_repair_s: float, seed: int
) -> tuple[NodeChange, ...]:
    """Draw failures of single nodes, with exponential times to failure and to repair (the usual renewal model)."""
    for name, value in (
        ("time span", until_s),
        ("mean time to failure", mean_time_to_failure_s),
        ("mean time to repair", mean_time_to_repair_s),
    ):
        if not 0 < value <= MAX_TIME_S:
            raise SettingError(
                f"failures with a {name} of {value} s cannot be drawn; give more than 0, and at most 126 years"
            )
    generator = np.random.default_rng((seed, 0x6661696C))

    def of_node(node: int) -> Iterator[NodeChange]:
        now = generator.exponential(mean_time_to_failure_s)
        while now < until_s:
            yield NodeChange(float(now), node, "down")
            now += generator.exponential(mean_time_to_repair_s)
            yield NodeChange(float(now), node, "up")
            now += generator.exponential(mean_time_to_failure_s)

    changes = [change for node in range(len(cluster.gpus)) for change in of_node(node)]
    return tuple(sorted(changes, key=lambda change: (change.time_s, change.node)))
