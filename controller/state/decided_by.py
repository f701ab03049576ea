"""Maker of a decision, as the journal, events and metrics name it."""

from __future__ import annotations

from dataclasses import dataclass

_FALLBACK = "fallback:"


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """A policy, and whether it decided as the fallback. `str` gives the form that is stored: "srtf", or "fallback:fifo"."""

    policy: str
    fallback: bool = False

    @classmethod
    def parse(cls, text: str) -> DecidedBy:
        """Read the stored form."""
        return cls(text.removeprefix(_FALLBACK), text.startswith(_FALLBACK))

    def __str__(self) -> str:
        return f"{_FALLBACK}{self.policy}" if self.fallback else self.policy
