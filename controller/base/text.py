"""Numbers and names as text for users."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,255}")
"""Names of users for which the page may call the controller."""
_JOB_ID = r"\d+(?:_(?:\d+|\[[\d,%-]+\]))?"
_JOB_IDS = re.compile(
    rf"\bjob(s?)(?:[ _-]?ids?)?\s*[:=#]?\s*{_JOB_ID}((?:(?:\s*,\s*(?:and\s+)?|\s+(?:and|or)\s+){_JOB_ID}(?!\d|\s+more))*)",
    re.IGNORECASE,
)
"""One or more ids after the word "job". Groups: the plural, and the ids after the first."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (s|min|h|d)\b")
_BETWEEN_UNITS = re.compile(r"(?<=\d[hd]) (?=\d+[hm]\b)")
_HALF_A_YEAR_S = 180 * 86_400.0


def duration(seconds: float) -> str:
    """Return a duration as text: "45 s", "12 min", "3 h 5 min", "2 d 4 h"."""
    whole = max(int(seconds + 0.5), 0)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{(whole + 30) // 60} min"
    if whole < 172_800:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def shortened(durations: str) -> str:
    """Return text with durations for a narrow column: "12m-2h5m" for "12 min - 2 h 5 min"."""
    return _BETWEEN_UNITS.sub("", _BEFORE_UNIT.sub(lambda found: found[1][0], durations)).replace(" - ", "-")


def _two(large: int, unit: str, small: int, lesser: str) -> str:
    return f"{large} {unit} {small} {lesser}" if small else f"{large} {unit}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 job", "3 jobs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def three_digits(number: float) -> str:
    """Return a number of 0 or more with three significant digits, and all before the decimal point: "5.4", "1234", "<0.001"."""
    if 0 < number < 0.001:
        return "<0.001"
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def gpu_hours(hours: float) -> str:
    """Return "2.5 GPU hours": three significant digits, and whole hours from 1,000 on."""
    return f"{three_digits(hours)} GPU hours"


def clock_time(time_s: float) -> str:
    """Return the local date and time of day, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def short_time(time_s: float, now_s: float) -> str:
    """Return a local time for a narrow column, in at most 11 signs.

    Without the date if it is today's ("13:18:17"), without the year if it is near ("11-28 13:18"), or only the date ("2024-11-28").
    """
    then, now = time.localtime(time_s), time.localtime(now_s)
    if (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%m-%d %H:%M" if abs(time_s - now_s) < _HALF_A_YEAR_S else "%Y-%m-%d", then)


def capitalized(sentence: str) -> str:
    """Return the text with a capital first letter, the rest unchanged."""
    return sentence[:1].upper() + sentence[1:]


def clip(text: str | bytes, limit: int = 400) -> str:
    """Return text that others wrote so that it is safe and short enough for an error message."""
    shown = repr(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)[1:-1]
    return shown if len(shown) <= limit else f"{shown[:limit]}..."


def encodable(text: str) -> str:
    r"""Return a text that every terminal and every reader of JSON takes: bytes that are no UTF-8 are shown escaped, as \udcff."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def readable(text: str) -> str:
    r"""Return a text that was read with `surrogateescape` with its bytes that are no UTF-8 as \\xe9.

    Names and paths of users may have any encoding; neither SQLite nor protobuf takes them as they were read.
    """
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def without_job_ids(text: str) -> str:
    """Return the text with "another job" and "other jobs" in place of ids, for users who may not see the jobs of others.

    Ids are found behind the word "job"; the texts of a policy of another package have to write them so.
    """
    return _JOB_IDS.sub(lambda found: "other jobs" if found[1] or found[2] else "another job", text)


def listed(names: Iterable[str], most: int = 5, number: int | None = None) -> str:
    """Return the first names, and how many more there are of `number` (None: of those given): "n1, n2 and 3 more"."""
    given = list(names)
    more = (len(given) if number is None else number) - most
    return ", ".join(given[:most]) + (f" and {more} more" if more > 0 else "")


def left_out_text(errors_by_part: Iterable[tuple[str, int]]) -> str:
    """Return how many unexpected errors left something out, and in which parts of Headway, those with most first; "" if none."""
    parts = sorted(errors_by_part, key=lambda one: (-one[1], one[0]))
    if not parts:
        return ""
    total = sum(number for _, number in parts)
    named = listed(f"{part} ({number})" for part, number in parts)
    return f"{count(total, 'unexpected error')}, each of which left out a job, node or row: {named}"


def describe_placement(names: Iterable[str], gpus: Iterable[int]) -> str:
    """Return a placement as text, with the GPUs on each node: "n1:8,n2:4"."""
    return ",".join(f"{name}:{count}" for name, count in zip(names, gpus, strict=True))
