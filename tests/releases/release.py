"""The releases of Slurm, and the parts that are run on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of Slurm, as a suite of Debian has it."""

    slurm: str
    """The first two numbers of its version: "22.05"."""
    suite: str
    """Suite of Debian: "bookworm"."""


RELEASES = (Release("22.05", "bookworm"), Release("24.11", "trixie"), Release("26.05", "sid"))

INSTALLATION_PARTS = ("install", "upgrade", "undo")
"""Parts on one bare machine, in this order. Each needs the first."""

TEST_PARTS = ("contract", "spank", "agents", "parity")
"""Parts on mini-clusters, with the Python of this process. None needs another."""

PARTS = (*INSTALLATION_PARTS, *TEST_PARTS)


def with_needed(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts in the order of their execution, with those that they need."""
    needed = {*parts, *INSTALLATION_PARTS[:1]} if {*parts} & {*INSTALLATION_PARTS} else {*parts}
    return tuple(part for part in PARTS if part in needed)


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one part on one release."""

    release: str
    part: str
    verdict: Verdict
    detail: str
    """Counts, or what failed first."""
    duration_s: float
    failures: tuple[str, ...] = ()
    """Each failure on one line."""
