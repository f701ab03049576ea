"""Interval arithmetic, compared with counting each nanosecond."""

from __future__ import annotations

from itertools import pairwise

from headway_job.profiling.intervals import Interval, clip, intersect, subtract, total, union
from hypothesis import given
from hypothesis import strategies as st

_SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def _points(spans: list[Interval]) -> set[int]:
    return {point for begin, end in spans for point in range(begin, end)}


def _is_cover(spans: list[Interval]) -> bool:
    return all(begin < end for begin, end in spans) and all(one[1] < other[0] for one, other in pairwise(spans))


@given(_SPANS)
def test_union(spans: list[Interval]) -> None:
    cover = union(spans)
    assert _is_cover(cover)
    assert _points(cover) == _points(spans)
    assert total(cover) == len(_points(spans))


@given(_SPANS, _SPANS)
def test_intersect(one: list[Interval], other: list[Interval]) -> None:
    both = intersect(union(one), union(other))
    assert _is_cover(both)
    assert _points(both) == _points(one) & _points(other)


@given(_SPANS, _SPANS)
def test_subtract(one: list[Interval], other: list[Interval]) -> None:
    left = subtract(union(one), union(other))
    assert _is_cover(left)
    assert _points(left) == _points(one) - _points(other)


@given(_SPANS, st.integers(0, 40), st.integers(0, 40))
def test_clip(spans: list[Interval], begin: int, end: int) -> None:
    assert _points(clip(union(spans), begin, end)) == {point for point in _points(spans) if begin <= point < end}


def test_adjacent_intervals_are_joined() -> None:
    assert union([(3, 5), (0, 3), (5, 5)]) == [(0, 5)]
