"""Settings of Slurm's multifactor plugin, as `scontrol show config` prints them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.base.errors import SlurmReplyError
from controller.slurm.scontrol.values import duration_s

MULTIFACTOR = "priority/multifactor"
_MOST = 2.0**64
"""Larger weights are none: priorities must be finite. Slurm keeps them in 32 bits, those of resources as 64-bit floats."""


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """Weights of the factors, each of which is between 0 and 1 unless a flag says otherwise."""

    age: float = 0.0
    fairshare: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = field(default_factory=dict)
    """Weights of types of resources, which are in small letters: "cpu", "mem", "node", "gres/gpu"."""
    max_age_s: float = 7 * 86400.0
    """Age at which the factor is 1, seconds."""
    favor_small: bool = False
    flags: frozenset[str] = frozenset()
    """PriorityFlags, in capital letters."""
    association: float = 0.0


def weights_of(settings: Mapping[str, str]) -> PriorityWeights | None:
    """Return the weights; None if Slurm does not use the multifactor plugin. Raises SlurmReplyError."""
    if settings.get("PriorityType") != MULTIFACTOR:
        return None
    return PriorityWeights(
        age=_weight(settings, "Age"),
        fairshare=_weight(settings, "FairShare"),
        job_size=_weight(settings, "JobSize"),
        partition=_weight(settings, "Partition"),
        qos=_weight(settings, "QOS"),
        tres=_tres(settings.get("PriorityWeightTRES", "")),
        max_age_s=_max_age_s(settings.get("PriorityMaxAge", "7-00:00:00")),
        favor_small=settings.get("PriorityFavorSmall", "No").upper() in {"YES", "1"},
        flags=frozenset(filter(None, settings.get("PriorityFlags", "").upper().split(","))),
        association=_weight(settings, "Assoc"),
    )


def _max_age_s(text: str) -> float:
    """Return the age at which the factor is 1, at least a second; without a limit no age counts."""
    limit_s = duration_s(text)
    return math.inf if limit_s is None else max(limit_s, 1.0)


def _weight(settings: Mapping[str, str], factor: str) -> float:
    return _number(f"PriorityWeight{factor}", settings.get(f"PriorityWeight{factor}", "0"))


def _tres(text: str) -> dict[str, float]:
    if text in {"", "(null)", "NONE"}:
        return {}
    pairs = (item.partition("=")[::2] for item in text.split(","))
    return {kind.lower(): _number("PriorityWeightTRES", weight) for kind, weight in pairs}


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not abs(found) <= _MOST:
        raise SlurmReplyError(f"{name} is not a number: {text[:80]!r}")
    return found
