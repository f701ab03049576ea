"""Estimates of starts as people read them. Times in seconds since the Unix epoch; a latest time of 0: none can be given."""

from __future__ import annotations

import time
from collections.abc import Iterable

from controller.base.text import duration

FEW = 10
"""With fewer earlier ranges than this, no share of them is given: it would say nothing."""
_SOON_S = 60.0
_NO_DATE_S = 72_000.0
"""Times closer than this have no date."""


def start_sentence(earliest_s: float, latest_s: float, held: int, known: int, stand_in: str, now_s: float) -> str:
    """Return "It is expected to start between 14:10 and 15:30 (of such estimates 8 in 10 held)."."""
    return f"It is expected to start {_when(earliest_s, latest_s, now_s)} ({past_text(held, known, stand_in)})."


def start_range(earliest_s: float, latest_s: float, now_s: float) -> str:
    """Return the range as time from now, for a column: "12 min - 2 h 5 min", "> 3 h", "< 5 min"."""
    earliest = duration(max(earliest_s - now_s, 0.0))
    if not latest_s:
        return f"> {earliest}"
    if latest_s - now_s < _SOON_S:
        return "< 1 min"
    latest = duration(latest_s - now_s)
    return f"< {latest}" if earliest_s - now_s < _SOON_S else f"{earliest} - {latest}"


def past_text(held: int, known: int, stand_in: str) -> str:
    """Return how good such estimates were, and whose rule they follow."""
    notes = ["too few such estimates yet to say how many hold"]
    if known >= FEW:
        notes = [f"of such estimates {round(10 * held / known)} in 10 held"]
    if stand_in:
        notes.append(f"computed as if policy {stand_in} decided")
    return "; ".join(notes)


def past_of_all(estimates: Iterable[tuple[int, int, str]]) -> str:
    """Return how good the estimates of a list were, as one sentence; empty without estimates.

    Each has the number of earlier ranges of its horizon that held, the number of those that are known, and its stand-in. The shares
    are not added up: horizons differ in them, and one job says nothing about another's.
    """
    each = list(estimates)
    if not each:
        return ""
    tenths = sorted({round(10 * held / known) for held, known, _ in each if known >= FEW})
    note = "too few such estimates yet to say how many hold"
    if tenths:
        note = f"of such estimates {' to '.join(str(each) for each in sorted({tenths[0], tenths[-1]}))} in 10 held"
    stand_ins = sorted({stand_in for _, _, stand_in in each if stand_in})
    return f"Starts: {note}{''.join(f'; computed as if policy {name} decided' for name in stand_ins)}."


def _when(earliest_s: float, latest_s: float, now_s: float) -> str:
    if not latest_s:
        return f"after {_moment(earliest_s, now_s)}, perhaps much later"
    if latest_s - now_s < _SOON_S:
        return "within a minute"
    if earliest_s - now_s < _SOON_S:
        return f"before {_moment(latest_s, now_s)}"
    return f"between {_moment(earliest_s, now_s)} and {_moment(latest_s, now_s)}"


def _moment(time_s: float, now_s: float) -> str:
    """Return the local time of day, with the date if it is far away."""
    near = abs(time_s - now_s) < _NO_DATE_S
    return time.strftime("%H:%M" if near else "%Y-%m-%d %H:%M", time.localtime(time_s))
