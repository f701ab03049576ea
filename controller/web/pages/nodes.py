"""The nodes by rack, each with the jobs on its GPUs; and the nodes that start no jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway_client import NodeUse, Queue, QueueEntry, Status

from controller.base.apart import apart
from controller.web.pages.placements import by_node, colour

MOST_SHARE = 16
"""Largest width in static/style.css."""


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs of a node that one job holds, or that are free, or held by jobs that are not shown."""

    kind: str
    """job, other or free."""
    gpus: int
    job_id: str = ""
    colour: int = 0
    user: str = ""
    name: str = ""

    @property
    def width(self) -> int:
        """The width of its bar, in GPUs."""
        return min(max(self.gpus, 1), MOST_SHARE)


@dataclass(frozen=True, slots=True)
class NodeBox:
    """One node."""

    node: NodeUse
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Rack:
    """The nodes of one rack."""

    name: str
    boxes: tuple[NodeBox, ...]
    gpus: int
    free: int


def racks(status: Status, queue: Queue) -> list[Rack]:
    """Return the racks by name; nodes without a rack come last."""
    jobs = by_node(queue.entries)
    found: dict[str, list[NodeBox]] = {}
    for node in sorted(status.nodes, key=lambda node: _natural(node.name)):
        with apart("rows of web pages", node.name):
            found.setdefault(node.rack, []).append(NodeBox(node, _shares(node, jobs)))
    names = sorted(found, key=lambda name: (not name, _natural(name)))
    return [_rack(name, found[name]) for name in names]


def out_of_service(status: Status) -> list[NodeUse]:
    """Return the nodes that start no jobs now, by name."""
    return sorted((node for node in status.nodes if not node.available), key=lambda node: _natural(node.name))


def _rack(name: str, boxes: Sequence[NodeBox]) -> Rack:
    free = sum(max(box.node.gpus - box.node.gpus_used, 0) for box in boxes if box.node.available)
    return Rack(name, tuple(boxes), sum(box.node.gpus for box in boxes), free)


def _shares(node: NodeUse, jobs: Mapping[str, Sequence[tuple[QueueEntry, int]]]) -> tuple[Share, ...]:
    found = [
        Share("job", gpus, entry.job_id, colour(entry.job_id), entry.user, entry.name)
        for entry, gpus in jobs.get(node.name, ())
    ]
    others = node.gpus_used - sum(share.gpus for share in found)
    if others > 0:
        found.append(Share("other", others))
    free = node.gpus - max(node.gpus_used, sum(share.gpus for share in found))
    if free > 0:
        found.append(Share("free", free))
    return tuple(found)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a key by which n2 comes before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(not part[0].isdecimal(), int(part) if part[0].isdecimal() else 0, part) for part in parts]
