"""What `headway doctor` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but slower or less safely than it could."""
    ERROR = "error"
    """Headway does not do its work, or a failure of it would harm jobs."""
    SKIPPED = "skipped"
    """Could not be looked at; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """Short name, the same in every version."""
    level: Level
    what: str
    mend: str = ""
    """What to do; empty when nothing is to be done."""
