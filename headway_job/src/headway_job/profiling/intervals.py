"""Arithmetic of time spans: pure. A span is (begin, end); a cover is a list of spans, sorted, apart, none empty."""

from __future__ import annotations

from typing import Iterable, List, Tuple

Span = Tuple[int, int]


def union(spans: Iterable[Span]) -> List[Span]:
    """The cover of everything that any of the spans covers."""
    cover: List[Span] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if cover and begin <= cover[-1][1]:
            if end > cover[-1][1]:
                cover[-1] = (cover[-1][0], end)
        else:
            cover.append((begin, end))
    return cover


def total(cover: Iterable[Span]) -> int:
    """How long a cover is."""
    return sum(end - begin for begin, end in cover)


def intersect(one: List[Span], other: List[Span]) -> List[Span]:
    """The cover of what both covers cover."""
    both: List[Span] = []
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


def subtract(cover: List[Span], hole: List[Span]) -> List[Span]:
    """The cover of what `cover` covers and `hole` does not."""
    left: List[Span] = []
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


def clip(cover: List[Span], begin: int, end: int) -> List[Span]:
    """The part of a cover between two times."""
    return intersect(cover, [(begin, end)]) if begin < end else []
