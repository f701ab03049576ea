"""Published systems whose results `headway-sim reproduce NAME` makes again. A system registers itself in `SYSTEMS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import SettingError


@dataclass(frozen=True, slots=True)
class System:
    """One published system."""

    says: str
    """What is made again, and the paper that it stands in."""
    make: Callable[[int, Path | None], None]
    """With that seed, into that folder; prints each figure beside the paper's."""


SYSTEMS: dict[str, System] = {}
"""None yet: learned systems come with their policies."""


def system_of(name: str) -> System:
    """The system of that name. Raises SettingError with the names there are."""
    if name not in SYSTEMS:
        there = (
            f"take one of {', '.join(sorted(SYSTEMS))}"
            if SYSTEMS
            else "none is there yet: they come with learned policies"
        )
        raise SettingError(f"there is no system {name!r} to reproduce; {there}")
    return SYSTEMS[name]
