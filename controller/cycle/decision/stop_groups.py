"""Which stops of a plan belong together: one alone would be in vain. Pure.

A job that waits can start when all have left that are to make room on its nodes; a job that is moved, when those have left where
it is to go. So a group is what one of them needs, and what those that move away need in turn. Groups may overlap: whom one of
them has stopped, the others need not stop. Groups that share a job are not made one: in a full cluster nearly all would hang
together, and what could be done for one job would wait until it can be done for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class StopGroup(NamedTuple):
    """Running jobs that are stopped all, or not at all."""

    rows: tuple[int, ...]
    """Those to stop, in the plan's order."""
    needed_by: int | None
    """Row of the waiting job that they make room for; None: nobody waits for it, they are only moved, or stopped."""


def stop_groups(
    occupied: Mapping[int, Sequence[int]],
    waiting: Iterable[tuple[int, Sequence[int]]],
    moves: Mapping[int, Sequence[int]],
) -> tuple[StopGroup, ...]:
    """The groups, those of waiting jobs first and in their order. Every stop is in one at least, no two groups are equal.

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
    """These, whoever is where one of them is to go, and so on: two that change places are a group."""
    found: set[int] = set()
    open_rows = list(needed)
    while open_rows:
        row = open_rows.pop()
        if row not in found:
            found.add(row)
            open_rows += [other for node in moves.get(row, ()) for other in on_node.get(node, ())]
    return found
