"""A target: one parser of what others write, with genuine inputs and the errors that it documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutate import Shape

Take = Callable[[bytes, Path], object]


class BrokenPromiseError(AssertionError):
    """A target's own check failed: a file was lost or changed, or a value came out that must not."""


@dataclass(frozen=True)
class Target:
    """Invariant: `take` reads one input, keeps nothing of it, and writes only below the folder that it is given."""

    name: str
    what: str
    """Description of the input and of its author."""
    shape: Shape
    corpus: Callable[[], Sequence[bytes]]
    """Genuine inputs. Called once."""
    take: Take
    """Read one input. The folder is empty at the first call, and the target's own."""
    errors: tuple[type[Exception], ...] = ()
    """The documented errors; any other exception is a crash."""
    file: str = ""
    """The input lies in a file of this name in the folder, and must lie there unchanged after the reading; empty: there is none."""
    cost: float = 1.0
    """Rough CPU time of one reading, in units of 0.1 ms: dearer targets get fewer runs."""
    limit_s: float = 2.0
    """Longest CPU time of one reading; thousands of times the usual one."""
    growth_bytes: int = 96 << 20
    """Memory that one reading may take beyond what the process has ever had, plus 100 times its input."""
    needs: str = ""
    """A module without which the target is left out."""
