"""Values as Slurm's programs write them: times, sizes, counts, generic resources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from controller.base.errors import SlurmReplyError

_UNITS_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT_UNITS = {"K": 1024, "M": 1024**2}
_MOST = 1 << 53
"""Up to here floating-point numbers are exact, and quotients of two numbers fit into 64 bits."""
MOST_TIER = (1 << 16) - 1
"""Slurm keeps the tiers of partitions in 16 bits."""
MOST_MIB = 1 << 40
"""More memory than any node has, MiB: sums over millions of jobs fit into 64 bits."""
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_UNLIMITED = frozenset({"UNLIMITED", "Partition_Limit", "INVALID", "NONE", "N/A"})
_INDEX_TYPE = re.compile(r"g\d+")
_GRES = re.compile(
    r"(?:gres[:/])?(?P<name>[^:/,=()]+)(?::(?P<type>[^:,=()]*[^\d:,=()][^:,=()]*))?(?:[:=](?P<count>\d+[KM]?))?"
)
_PARENTHESIS = re.compile(r"[()]")


def plain(text: str) -> str:
    """Return the text; empty for "(null)", which Slurm writes for values that are not set."""
    return "" if text == "(null)" else text


@lru_cache(maxsize=4096)
def duration_s(text: str) -> float | None:
    """Return "1-02:03:04", "02:03:04" or "03:04" in seconds; None where Slurm says that there is no limit."""
    if text in _UNLIMITED:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SlurmReplyError(f"not a duration: {text[:80]!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    found = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if found > _MOST:
        raise SlurmReplyError(f"not a duration: {text[:80]!r}")
    return found


@lru_cache(maxsize=4096)
def size_mib(text: str) -> int | None:
    """Return "1000M" or "187.50G" in MiB, rounded up; None for 0, which means "not limited"."""
    unit = _UNITS_MIB.get(text[-1:])
    digits = text if unit is None else text[:-1]
    try:
        return _bounded(-int(-float(digits) * (1.0 if unit is None else unit) // 1), text) or None
    except (ValueError, OverflowError):  # also "nan" and "inf"
        raise SlurmReplyError(f"not a size: {text[:80]!r}") from None


def count(text: str) -> int:
    """Return a whole number; Slurm may write 2048 as "2K"."""
    unit = _COUNT_UNITS.get(text[-1:])
    return whole(text) if unit is None else _bounded(whole(text[:-1]) * unit, text)


def whole(text: str) -> int:
    """Return a whole number of at most `_MOST`, or less than 0. Raises SlurmReplyError."""
    try:
        return _bounded(int(text), text)
    except ValueError:
        raise SlurmReplyError(f"not a number: {text[:80]!r}") from None


def within(number: int, most: int, text: str) -> int:
    """Return the number, which stands in that text, if it is from 0 to `most`. Raises SlurmReplyError."""
    if not 0 <= number <= most:
        raise SlurmReplyError(f"a number that no cluster has: {text[:80]!r}")
    return number


def _bounded(number: int, text: str) -> int:
    within(abs(number), _MOST, text)
    return number


def span(text: str) -> tuple[int, int]:
    """Return least and most: "3" → (3, 0), "1-3" → (1, 3); 0 = no upper bound."""
    least, dash, most = text.partition("-")
    return count(least), count(most) if dash else 0


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs in a list of generic resources."""

    count: int
    type: str
    """The type of all of them; "" when they have none, or when types only number them (one type per GPU index)."""
    others: bool
    """True when the list names other generic resources too."""
    several_types: bool
    """True when the list is more than a count and at most one real type."""


@lru_cache(maxsize=8192)
def gpus(text: str) -> Gpus:
    """Return the GPUs of "gpu:a100:8(S:0-1)", "gres:gpu:g0:1,gres:gpu:g3:1", "gres/gpu:2", "gpu:4,nvme:1", "(null)"."""
    total = 0
    types: list[str] = []
    others = False
    for item in _items(plain(text)):
        if not item:
            continue
        match = _GRES.match(item)
        if match is None:
            raise SlurmReplyError(f"not a generic resource: {text[:200]!r}")
        if match["name"] != "gpu":
            others = True
            continue
        total += count(match["count"] or "1")
        types.append(match["type"] or "")
    single = types[0] if len(set(types)) == 1 else ""
    numbered = _INDEX_TYPE.fullmatch(single) is not None
    return Gpus(total, "" if numbered else single, others, numbered or len(types) > 1)


@lru_cache(maxsize=4096)
def gpus_by_index(text: str) -> tuple[tuple[int, int], ...]:
    """Return indices and numbers of the GPUs in "gres:gpu:g0:1,gres:gpu:g3:1", ascending; empty if not all types are indices."""
    found: dict[int, int] = {}
    for item in _items(plain(text)):
        match = _GRES.match(item)
        if match is None or match["name"] != "gpu" or not _INDEX_TYPE.fullmatch(match["type"] or ""):
            return ()
        index = int(match["type"][1:])
        found[index] = found.get(index, 0) + count(match["count"] or "1")
    return tuple(sorted((index, number) for index, number in found.items() if number))


def gpus_by_type(text: str) -> tuple[tuple[str, int], ...]:
    """Return types and numbers of the GPUs in the same texts, those whose types only number them too. Others do not count."""
    found: dict[str, int] = {}
    for item in _items(plain(text)):
        match = _GRES.match(item)
        if match is not None and match["name"] == "gpu" and match["type"]:
            found[match["type"]] = found.get(match["type"], 0) + count(match["count"] or "1")
    return tuple(found.items())


def _items(text: str) -> list[str]:
    """Split at the commas outside of parentheses: those behind which no parenthesis is closed before another is opened.

    From the right, because a search behind each comma would take quadratic time, and users may write any number of commas.
    """
    items: list[list[str]] = []
    inside = False
    for piece in reversed(text.split(",")):
        if inside:
            items[-1].append(piece)
        else:
            items.append([piece])
        parenthesis = _PARENTHESIS.search(piece)
        if parenthesis is not None:
            inside = parenthesis[0] == ")"
    return [",".join(reversed(pieces)) for pieces in reversed(items)]
