"""Stops of a plan that belong together, because one alone would be useless. Pure functions.

A waiting job can start when all jobs that are stopped for it have left its nodes; a moved job, when the jobs on its new nodes
have left. So a group has all the stops that one job needs, and those that the moved jobs among them need in turn. Groups may
overlap: a job that one group has stopped need not be stopped by another. Groups that share a job are not merged: in a full cluster
nearly all stops would become one group, and no job could start before all of them can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class StopGroup(NamedTuple):
    """Running jobs that are stopped all together, or not at all."""

    rows: tuple[int, ...]
    """Rows of the jobs to stop, in the plan's order."""
    needed_by: int | None
    """Row of the waiting job for which they are stopped; None: no job waits for them, they are only moved or stopped."""


def stop_groups(
    occupied: Mapping[int, Sequence[int]],
    waiting: Iterable[tuple[int, Sequence[int]]],
    moves: Mapping[int, Sequence[int]],
) -> tuple[StopGroup, ...]:
    """Return the groups, those of waiting jobs first and in their order. Every stop is in at least one; no two groups are equal.

    `occupied`: nodes of each job to stop. `waiting`: jobs that start when these have gone, and their nodes, the most urgent first.
    `moves`: target nodes of the jobs in `occupied` that are moved rather than only stopped.
    """
    on_node: dict[int, list[int]] = defaultdict(list)
    for row, nodes in occupied.items():
        for node in nodes:
            on_node[node].append(row)
    place = {row: number for number, row in enumerate(occupied)}
    groups: dict[tuple[int, ...], int | None] = {}
    grouped: set[int] = set()

    def add(needed: Iterable[int], needed_by: int | None) -> None:
        rows = tuple(sorted(_with_moves(needed, on_node, moves), key=place.__getitem__))
        if rows:
            groups.setdefault(rows, needed_by)
            grouped.update(rows)

    for job, nodes in waiting:
        add((row for node in nodes for row in on_node.get(node, ())), job)
    for row in occupied:
        if row not in grouped:
            add([row], None)
    return tuple(StopGroup(rows, needed_by) for rows, needed_by in groups.items())


def _with_moves(
    needed: Iterable[int], on_node: Mapping[int, Sequence[int]], moves: Mapping[int, Sequence[int]]
) -> set[int]:
    """Return these jobs, the jobs on the new nodes of those that move, and so on: two jobs that change places are a group."""
    found: set[int] = set()
    open_rows = list(needed)
    while open_rows:
        row = open_rows.pop()
        if row not in found:
            found.add(row)
            open_rows += [other for node in moves.get(row, ()) for other in on_node.get(node, ())]
    return found
