"""Verdicts on cases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Comparison of Headway with Slurm alone. Members are ordered from good to bad."""

    SKIPPED = "skipped"
    """Not played, with the reason."""
    BETTER = "better"
    EQUAL = "equal"
    KNOWN = "known limit"
    """Worse, and docs/operations.md says so."""
    WORSE = "worse"

    @property
    def rank(self) -> int:
        """Position in the order from good to bad."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two outcomes."""

    subject: str
    """Label of the job or command; empty for the whole case."""
    aspect: str
    """The aspect that differs: submission, state, order, start, nodes, resources, environment, step, output, exit status, ..."""
    text: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on a case, with every difference."""

    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    """Reason why the case was skipped."""
