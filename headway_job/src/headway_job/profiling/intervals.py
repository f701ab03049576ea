"""Set operations on time intervals, as pure functions. An interval is (begin, end).

A cover is a list of intervals that are sorted, disjoint and not empty.
"""

from __future__ import annotations

from typing import Iterable, List, Tuple

Interval = Tuple[int, int]


def union(intervals: Iterable[Interval]) -> List[Interval]:
    """Return the cover of the union of the intervals."""
    cover: List[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if cover and begin <= cover[-1][1]:
            if end > cover[-1][1]:
                cover[-1] = (cover[-1][0], end)
        else:
            cover.append((begin, end))
    return cover


def total(cover: Iterable[Interval]) -> int:
    """Return the total length of a cover."""
    return sum(end - begin for begin, end in cover)


def intersect(one: List[Interval], other: List[Interval]) -> List[Interval]:
    """Return the intersection of two covers."""
    both: List[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin = max(one[i][0], other[j][0])
        end = min(one[i][1], other[j][1])
        if begin < end:
            both.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return both


def subtract(cover: List[Interval], hole: List[Interval]) -> List[Interval]:
    """Return the part of `cover` that is not in `hole`."""
    left: List[Interval] = []
    j = 0
    for begin, end in cover:
        at = begin
        while j < len(hole) and hole[j][1] <= at:
            j += 1
        k = j
        while k < len(hole) and hole[k][0] < end:
            if hole[k][0] > at:
                left.append((at, hole[k][0]))
            at = max(at, hole[k][1])
            k += 1
        if at < end:
            left.append((at, end))
    return left


def clip(cover: List[Interval], begin: int, end: int) -> List[Interval]:
    """Return the part of a cover between two times."""
    return intersect(cover, [(begin, end)]) if begin < end else []
