"""Users' options for their jobs, in the job's comment: `headway=preemptible+min-gpus:2+max-gpus:8+steps:9000`. Pure functions.

Of the words of the comment, separated by blanks, those that begin with "headway=" are Headway's; options joined by "+" follow it.
Users write comments by hand: an unknown option is kept and shown by `headway why`, and is never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PREFIX = "headway="
MOST_GPUS = 1_000_000
"""Largest number of GPUs that is accepted: no cluster has more, so a larger number is a mistake."""
_GPUS = re.compile(r"(min|max)-gpus:0*([1-9]\d{0,6})", re.ASCII)
_LENGTH = re.compile(r"(steps|epochs):0*([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Options of one job. Invariant: `min_gpus` is not above `max_gpus` where both are given."""

    profile: bool = True
    """False: agents do not profile it."""
    preemptible: bool = False
    """True when its user declares that it is preemptible: on SIGUSR1 it saves and requeues itself."""
    min_gpus: int | None = None
    """Minimum number of GPUs in all."""
    max_gpus: int | None = None
    """Maximum number of GPUs in all."""
    steps: int | None = None
    """Optimizer steps that it trains in all: with them, its progress follows from the steps that agents report."""
    epochs: int | None = None
    """Epochs that it trains in all."""
    unknown: tuple[str, ...] = ()
    """Options that this version does not know, as they were written."""

    @property
    def elastic(self) -> bool:
        """True if its user limits the number of GPUs, so that the policy may choose it."""
        return self.min_gpus is not None or self.max_gpus is not None

    def allows(self, num_gpus: int) -> bool:
        """Return whether the job's user allows that many GPUs; without limits, any number."""
        return (self.min_gpus or 1) <= num_gpus <= (self.max_gpus or MOST_GPUS)


NO_OPTIONS = UserOptions()


@lru_cache(maxsize=4096)
def read_user_options(comment: str) -> UserOptions:
    """Return the options in a job's comment. If an option is written twice, the last one counts."""
    if PREFIX not in comment:
        return NO_OPTIONS
    found: dict[str, int] = {}
    unknown: list[str] = []
    for option in _written(comment):
        gpus = _GPUS.fullmatch(option)
        if option in {"off", "preemptible"}:
            found[option] = 1
        elif gpus is not None and int(gpus[2]) <= MOST_GPUS:
            found[gpus[1]] = int(gpus[2])
        elif (length := _LENGTH.fullmatch(option)) is not None:
            found[length[1]] = int(length[2])
        elif option:
            unknown.append(option)
    least, most = found.get("min"), found.get("max")
    if least is not None and most is not None and least > most:
        unknown.append(f"min-gpus:{least}+max-gpus:{most}")
        least = most = None
    return UserOptions(
        profile="off" not in found,
        preemptible="preemptible" in found,
        min_gpus=least,
        max_gpus=most,
        steps=found.get("steps"),
        epochs=found.get("epochs"),
        unknown=tuple(unknown),
    )


def unknown_options_text(options: UserOptions) -> str:
    """Return a sentence about unknown options; empty if there are none."""
    if not options.unknown:
        return ""
    named = ", ".join(options.unknown)
    return (
        f"Its comment has unknown options ({named}): Headway knows off, preemptible, min-gpus:N and max-gpus:N"
        " (N from 1, the least not above the most), steps:N and epochs:N, joined by +."
    )


def _written(comment: str) -> list[str]:
    words = (word.removeprefix(PREFIX) for word in comment.split() if word.startswith(PREFIX))
    return [option for word in words for option in word.split("+")]
