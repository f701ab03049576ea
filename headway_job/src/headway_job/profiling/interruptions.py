"""Steps of a profile window in which the program did something else for long, such as an evaluation or its own checkpoint.

They begin with the end of one optimizer step and end with that of the next one, so they look like long steps. In training they are
rare, and in a window of some steps one of them would count for most of the time. So they are left out. Where long steps are
frequent, they are the job's own: they stay.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import List, Sequence, Union

from .intervals import Interval

_LONG_FACTOR = 5.0
"""A step that takes so many times the usual one contains something else."""
_MOST_SHARE = 0.1
"""Largest share of the steps of a window that may be left out. One step always may be, if another one is left."""
_LEAST_STEPS = 4


def interrupted(seconds: Sequence[float], own: Sequence[float]) -> List[int]:
    """Return the places of the steps to leave out. `own`: the time of each step without its waits for data (see `own_times`)."""
    limit = _LONG_FACTOR * _middle(seconds)
    found = [place for place, each in enumerate(own) if each > limit]
    return found if len(found) <= max(1, int(_MOST_SHARE * len(seconds))) else []


def own_times(steps: Sequence[Interval], data_waits: Sequence[Interval]) -> List[float]:
    """Return the time of each step without its waits for data.

    A step that waits long for its batch is no interruption. An evaluation waits for many batches, so only as many waits are
    deducted as a step usually has, those that are longest.
    """
    waits: List[List[int]] = [[] for _ in steps]
    begins = [begin for begin, _ in steps]
    for begin, end in data_waits:
        place = bisect_right(begins, begin) - 1
        if place >= 0 and begin < steps[place][1]:
            waits[place].append(min(end, steps[place][1]) - begin)
    usual = max(1, int(_middle([len(each) for each in waits])))
    return [end - begin - sum(sorted(each)[-usual:]) for (begin, end), each in zip(steps, waits)]


def few_remain(seconds: Sequence[float], wanted: int, usual_s: float = math.inf) -> bool:
    """Return True if a window was interrupted and has too few other steps. `usual_s`: mean time of a step before the window."""
    limit = _LONG_FACTOR * min(_middle(seconds), usual_s)
    short = sum(each <= limit for each in seconds)
    return short < min(wanted, _LEAST_STEPS, len(seconds))


def _middle(values: Sequence[Union[int, float]]) -> float:
    """Return the median, the lower one of two. (statistics.median_low, which imports much that programs do not have.)"""
    return sorted(values)[(len(values) - 1) // 2]
