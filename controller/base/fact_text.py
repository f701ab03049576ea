"""The facts behind `headway why` as text for people. JSON has them as they are: names with units, and numbers.

A fact that is a number of seconds is a time (Unix), a duration, or GPU time. Times are known by the ends of their names, or are
listed here; a test reads the names of all facts in the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from controller.base.text import duration, gpu_hours

_TIMES = ("_time_s", "_since_s", "_start_s")
"""Ends of the names of times. The name of a duration ends in none of them."""
_STAGES = frozenset(f"preemption_{stage}_s" for stage in ("asked", "saved", "stopped", "started", "resumed"))
"""Times whose names have no such end; programs of users read them by these names."""
_GPU_SECONDS = "gpu_s"
_RATE, _SECONDS = "_steps_per_s", "_s"
_HIDDEN = "snapshot_"
"""Beginning of the names that identify a snapshot. Only a comparison of logs needs them."""
_LONGEST_S, _LATEST_S = 1e9, 1e11
"""A number of seconds between both, in a fact that this version does not know, is a time and no duration: 1e9 s are 31 years."""
_DURATIONS = frozenset({"wait_s", "service_s", "time_limit_s", "next_try_in_s", "estimate_s", "estimate_spread_s"})
"""Durations that are known as such, whatever their value."""


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A fact with its name as words."""

    label: str
    text: str
    """Empty for a time."""
    time_s: float | None = None
    """Seconds since the Unix epoch; None: the fact is not a time."""


_NO_REASON = "None"
"""Slurm's reason of a job that waits for nothing."""


def is_time(name: str) -> bool:
    """Return whether facts of this name are times, by the name alone."""
    return name.endswith(_TIMES) or name in _STAGES


def is_duration(name: str) -> bool:
    """Return whether facts of this name are durations, by the name alone."""
    return name in _DURATIONS


def shown_fact(name: str, value: str) -> ShownFact | None:
    """Return the fact as people read it; None if it is for programs only, or empty."""
    if name.startswith(_HIDDEN) or not value or (name == "slurm_reason" and value == _NO_REASON):
        return None
    label = name.replace("_", " ")
    number = _number(value) if name.endswith(_SECONDS) else None
    if number is None:
        return ShownFact(label, value)
    if name.endswith(_RATE):
        return ShownFact(label.removesuffix(" steps per s"), f"{value} steps/s")
    label = label.removesuffix(" s")
    if is_time(name) or (not is_duration(name) and name != _GPU_SECONDS and _LONGEST_S < number < _LATEST_S):
        return ShownFact(label, "", number)
    return (
        ShownFact("GPU time", gpu_hours(number / 3600.0))
        if name == _GPU_SECONDS
        else ShownFact(label, duration(number))
    )


def _number(text: str) -> float | None:
    """Return the number; None where the text is none (a newer controller may have another form), NaN or infinity."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
