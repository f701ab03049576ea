"""The result of one check of an installation, as `headway doctor` and `headway-agent check` print it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """Headway works, but slower or less safely than it could, or measures less than it could."""
    ERROR = "error"
    """Headway does not work, or a failure of it would harm jobs; an agent does not start, or its measurements do not arrive."""
    SKIPPED = "skipped"
    """The check could not be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    """Short name, the same in every version."""
    level: Level
    what: str
    mend: str = ""
    """Action to take; empty when nothing needs to be done."""
