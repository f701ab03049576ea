"""Jobs that slow each other down, and jobs whose GPUs are idle, as the agents have measured."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client import Queue, QueueEntry

from controller.base.apart import apart
from controller.web.pages.placements import parse

SHOWN = 200
"""Pairs on the page; laying out a table of thousands takes a browser longer than the page takes to make."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that share a link or a host, and how much slower each trains than alone."""

    first: QueueEntry
    second_id: str
    second: QueueEntry | None
    """None: a job that this user may not see, or that Headway does not manage."""
    shared_nodes: tuple[str, ...] | None
    """Nodes of both, whose hosts and links they share; empty: they share links above their nodes; None: the second is hidden."""

    @property
    def worst(self) -> float:
        """The larger slowdown of the two; 0 where none is known."""
        return max(self.first.slowdown or 0.0, (self.second.slowdown or 0.0) if self.second else 0.0)


def pairs(queue: Queue) -> list[Pair]:
    """Return each pair once, the most slowed down first."""
    by_id = {entry.job_id: entry for entry in queue.entries}
    found: dict[tuple[str, ...], Pair] = {}
    for entry in queue.entries:
        for other in entry.beside:
            key = tuple(sorted((entry.job_id, other)))
            if key not in found:
                second = by_id.get(other)
                with apart("rows of web pages", entry.job_id):
                    found[key] = Pair(entry, other, second, None if second is None else _shared_nodes(entry, second))
    return sorted(found.values(), key=lambda pair: -pair.worst)


def _shared_nodes(first: QueueEntry, second: QueueEntry) -> tuple[str, ...]:
    """Return the names of the nodes that both have, in the order of the first one's placement."""
    others = {name for name, _ in parse(second.placement)}
    return tuple(name for name, _ in parse(first.placement) if name in others)


def idle(queue: Queue) -> list[QueueEntry]:
    """Return the running jobs of which GPUs were idle in the newest window, the most idle GPUs first."""
    return sorted((entry for entry in queue.entries if entry.idle_gpus), key=lambda entry: -(entry.idle_gpus or 0))


def measured(queue: Queue) -> int:
    """Return the number of running jobs that were measured."""
    return sum(entry.idle_gpus is not None for entry in queue.entries)
