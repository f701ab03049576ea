"""Placements of jobs as the controller writes them: "n1:8,n2:4"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from headway_client import QueueEntry

from controller.base.apart import apart

COLOURS = 12
"""Number of colours in static/style.css."""


def parse(placement: str) -> list[tuple[str, int]]:
    """Return node and GPUs of each part; a part without a number counts no GPU."""
    found = []
    for part in placement.split(","):
        node, _, gpus = part.rpartition(":")
        if gpus.isdecimal() and node:
            found.append((node, int(gpus)))
        elif part:
            found.append((part, 0))
    return found


def by_node(entries: Iterable[QueueEntry]) -> dict[str, list[tuple[QueueEntry, int]]]:
    """Return the jobs on each node, with their GPUs there."""
    found: dict[str, list[tuple[QueueEntry, int]]] = defaultdict(list)
    for entry in entries:
        with apart("rows of web pages", entry.job_id):
            for node, gpus in parse(entry.placement):
                found[node].append((entry, gpus))
    return found


def colour(job_id: str) -> int:
    """Return the colour of a job. Jobs that were submitted one after another have different colours."""
    digits = "".join(each for each in job_id if each.isdecimal())
    return int(digits or "0") % COLOURS
