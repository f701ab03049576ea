"""Transitions over several steps, for a replay memory.

Source: Sutton, "Learning to predict by the methods of temporal differences" (1988).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Transitions = dict[str, npt.NDArray[Any]]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Open:
    """Transitions that began in one step of all environments."""

    rows: Transitions
    is_over: Flags
    """True for environments whose episode has ended since: their transition is complete, and later steps belong to another
    episode."""
    left: int
    """Steps that are still missing."""


class NStepReturns:
    """Makes transitions over `steps` steps, of all environments together.

    A transition has `seen`, `masks`, `actions`, `returns` (the rewards of its steps, discounted), `gammas` (the discount of what
    follows; 0 after a terminated episode), `next_seen`, `next_masks`, and `shown`. An episode that ends sooner shortens it: if it
    terminated, nothing follows; if it was truncated, the last observation of the episode does.

    Invariant: `_open` are the last steps, at most `steps` - 1 between two calls, oldest first. None of them is lost if `flush` is
    called at the end.
    """

    def __init__(self, steps: int, shown: bool, dtype: npt.DTypeLike = np.float16) -> None:
        """`shown` is True if the actions are demonstrations. Observations are kept as `dtype`."""
        self._steps = steps
        self._shown = shown
        self._dtype = dtype
        self._open: list[_Open] = []
        """Bound: `steps`."""

    def step(
        self,
        before: Mapping[str, npt.NDArray[Any]],
        rewards: npt.NDArray[np.float64],
        gammas: npt.NDArray[np.float64],
        after: Mapping[str, npt.NDArray[Any]],
    ) -> Transitions | None:
        """Take in a step of all environments; return the transitions that are complete now, None where there are none.

        `before` has each environment's observation (`seen`), its `masks`, its `actions`, and whether the step is `kept`; `after`
        has the next `seen` and `masks`, and `is_over`, which is True where an episode ended. There, `seen` and `masks` are those
        of its last observation, and gamma is 0 if it terminated. Steps in which only one action was possible are not kept.
        """
        self._open.append(_Open(self._begun(before), np.zeros(len(rewards), dtype=np.bool_), self._steps))
        seen = after["seen"].astype(self._dtype)
        for each in self._open:
            goes_on = ~each.is_over
            each.rows["returns"] += np.where(goes_on, each.rows["gammas"] * rewards, 0.0)
            each.rows["gammas"] *= np.where(goes_on, gammas, 1.0)
            each.left -= 1
            ends = goes_on & (after["is_over"] if each.left else True)
            if ends.any():
                each.rows["next_seen"][ends] = seen[ends]
                each.rows["next_masks"][ends] = after["masks"][ends]
                each.is_over |= ends
        return None if self._open[0].left else self._complete(self._open.pop(0))

    def flush(self, after: Mapping[str, npt.NDArray[Any]]) -> list[Transitions]:
        """Return the transitions that are still open, cut short: they lead to `after`, the `seen` and `masks` after the last
        step."""
        rows = []
        for each in self._open:
            goes_on = ~each.is_over
            each.rows["next_seen"][goes_on] = after["seen"][goes_on]
            each.rows["next_masks"][goes_on] = after["masks"][goes_on]
            rows.append(self._complete(each))
        self._open.clear()
        return [each for each in rows if each is not None]

    def _begun(self, before: Mapping[str, npt.NDArray[Any]]) -> Transitions:
        count = len(before["actions"])
        seen = before["seen"].astype(self._dtype)
        return {
            "seen": seen,
            "masks": before["masks"],
            "actions": before["actions"],
            "returns": np.zeros(count),
            "gammas": np.ones(count),
            "next_seen": np.zeros_like(seen),
            "next_masks": np.zeros_like(before["masks"]),
            "kept": before["kept"].copy(),
        }

    def _complete(self, each: _Open) -> Transitions | None:
        rows = each.rows
        keep = rows.pop("kept") & (rows["masks"].sum(1) > 1)
        if not keep.any():
            return None
        rows["shown"] = np.full(len(keep), self._shown)
        rows |= {name: rows[name].astype(np.float32) for name in ("returns", "gammas")}
        return {name: column[keep] for name, column in rows.items()}
