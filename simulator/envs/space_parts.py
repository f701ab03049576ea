"""The parts of an environment's observation: where each is, its range, unit and meaning.

An environment describes its own (`space_parts`), with the indices that its options give; the table of the docs is made from them
(`python -m simulator.papers.spaces`). Invariant, which a test checks by acting: the parts cover each number of the observation
exactly once, and every observation is within their ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class SpacePart:
    """A block of an observation."""

    name: str
    where: str | Index
    """Key of a dictionary, or slices of an array; axes that are left out belong to the block as a whole."""
    low: float
    high: float
    unit: str
    means: str

    def of(self, observation: Any) -> npt.NDArray[Any]:
        """Return this block of an observation, as a view."""
        found: npt.NDArray[Any] = np.asarray(observation[self.where])
        return found

    def place(self) -> str:
        """Return where the part is, as Python writes it."""
        if isinstance(self.where, str):
            return f'["{self.where}"]'
        return f"[{', '.join(_slice_text(each) for each in self.where)}]"


class HasParts(Protocol):
    """An environment that describes its observation and its actions."""

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the parts of the observation."""

    def actions_text(self) -> str:
        """Return the meaning of the actions in a few words."""


def part_rows(env: HasParts, observation: Any) -> list[tuple[str, ...]]:
    """Return a row for each part: name, place, shape, range, unit, meaning. `observation` is one of that environment."""
    return [
        (
            part.name,
            part.place(),
            "x".join(map(str, part.of(observation).shape)) or "1",
            f"{_number(part.low)} to {_number(part.high)}",
            part.unit,
            part.means,
        )
        for part in env.space_parts()
    ]


def uncovered(env: HasParts, observation: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]) -> int:
    """Return how many numbers of an observation belong to no part, or to more than one."""
    if isinstance(observation, Mapping):
        named = [str(part.where) for part in env.space_parts()]
        return len(set(observation) ^ set(named)) + len(named) - len(set(named))
    times = np.zeros(observation.shape, dtype=np.int64)
    for part in env.space_parts():
        part.of(times)[...] += 1
    return int((times != 1).sum())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _slice_text(part: slice) -> str:
    return f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
