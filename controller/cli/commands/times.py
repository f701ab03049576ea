"""Times on the command line."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import typer

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|min|m|h|d)")
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DATES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCKS = ("%H:%M:%S", "%H:%M")


def time_of(text: str, now_s: float) -> float:
    """Return a time in seconds since the Unix epoch: so long before `now_s`, or a local date and time, or a time of today.

    Raises BadParameter.
    """
    if ago := _AGO.fullmatch(text.strip()):
        return now_s - float(ago[1]) * _UNITS_S[ago[2]]
    for form in _DATES:
        with suppress(ValueError, OverflowError):
            return time.mktime(time.strptime(text.strip(), form))
    today = time.strftime("%Y-%m-%d", time.localtime(now_s))
    for form in _CLOCKS:
        with suppress(ValueError, OverflowError):
            return time.mktime(time.strptime(f"{today} {text.strip()}", f"%Y-%m-%d {form}"))
    raise typer.BadParameter(
        f"{text!r} is no time; give how long ago it was (90s, 15m, 1h, 2d), or a local time (14:30, {today} 14:30)"
    )
