"""Time for which Slurm lets a requeued job wait. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf

from controller.slurm.configuration.conf import list_items

DEFAULT_S = 120.0
"""Slurm's default: the time for which it honours a job's credential (cred_expire of AuthInfo)."""
_NUMBER = re.compile(r"[0-9]{1,9}")


def requeue_delay_s(settings: Mapping[str, str]) -> float:
    """Return the longest time by which a requeue delays the begin of a job, seconds; infinite if a setting is not understood."""
    found = (
        seconds_of(list_items(settings.get("SchedulerParameters", "")), "requeue_delay"),
        seconds_of(list_items(settings.get("AuthInfo", "")), "cred_expire"),
    )
    if any(isinstance(value, str) for value in found):
        return inf
    known = [float(value) for value in found if isinstance(value, int)]
    return max([DEFAULT_S, *known])


def seconds_of(parameters: Iterable[str], name: str) -> int | str | None:
    """Return the value of a parameter; None when it is not set, and the whole item when it is not understood.

    Slurm takes the first of several, and does not see one with blanks before the "=".
    """
    item = next((item for item in parameters if item.partition("=")[0].strip().lower() == name), None)
    if item is None:
        return None
    value = item.partition("=")[2].strip()
    return int(value) if _NUMBER.fullmatch(value) and item[: len(name) + 1].endswith("=") else item
