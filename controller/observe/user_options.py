"""What users wish for their jobs, in words of the job's comment: `headway=preemptible+min-gpus:2+max-gpus:8`. Pure.

Among other words of the comment, separated by blanks, those that begin with "headway=" are Headway's; after it stand wishes
joined by "+". Users write comments by hand: what is not understood is kept and shown by `headway why`, and is never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PREFIX = "headway="
MOST_GPUS = 1_000_000
"""No cluster has more; a larger number is a mistake."""
_GPUS = re.compile(r"(min|max)-gpus:0*([1-9]\d{0,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Wishes of one job. Invariant: `min_gpus` is not above `max_gpus` where both are given."""

    profile: bool = True
    """False: nobody is to look at how it trains."""
    preemptible: bool = False
    """Its user declares that it can come back: on SIGUSR1 it saves and requeues itself."""
    min_gpus: int | None = None
    """Fewest GPUs in all that it may be given."""
    max_gpus: int | None = None
    """Most GPUs in all that it may be given."""
    unknown: tuple[str, ...] = ()
    """Words after "headway=" that say nothing to this version, as they were written."""

    @property
    def elastic(self) -> bool:
        """Its user says how many GPUs it may have: whoever decides may choose the number."""
        return self.min_gpus is not None or self.max_gpus is not None

    def allows(self, num_gpus: int) -> bool:
        """Whether that many GPUs are within what its user said; where nothing was said, any number is."""
        return (self.min_gpus or 1) <= num_gpus <= (self.max_gpus or MOST_GPUS)


NO_OPTIONS = UserOptions()


@lru_cache(maxsize=4096)
def read_user_options(comment: str) -> UserOptions:
    """The wishes in a job's comment. Of a wish that is written twice the last counts."""
    if PREFIX not in comment:
        return NO_OPTIONS
    found: dict[str, int] = {}
    unknown: list[str] = []
    for wish in _written(comment):
        gpus = _GPUS.fullmatch(wish)
        if wish in {"off", "preemptible"}:
            found[wish] = 1
        elif gpus is not None and int(gpus[2]) <= MOST_GPUS:
            found[gpus[1]] = int(gpus[2])
        elif wish:
            unknown.append(wish)
    least, most = found.get("min"), found.get("max")
    if least is not None and most is not None and least > most:
        unknown.append(f"min-gpus:{least}+max-gpus:{most}")
        least = most = None
    return UserOptions("off" not in found, "preemptible" in found, least, most, tuple(unknown))


def unknown_options_text(options: UserOptions) -> str:
    """A sentence about what was not understood; empty when all was."""
    if not options.unknown:
        return ""
    named = ", ".join(options.unknown)
    return (
        f"Its comment wishes for {named}, which Headway does not understand: it knows off, preemptible, min-gpus:N and max-gpus:N"
        " (N from 1, the least not above the most), joined by +."
    )


def _written(comment: str) -> list[str]:
    words = (word.removeprefix(PREFIX) for word in comment.split() if word.startswith(PREFIX))
    return [wish for word in words for wish in word.split("+")]
