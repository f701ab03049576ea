"""Transitions over several steps, for a replay memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Transitions = dict[str, npt.NDArray[Any]]


class NStepReturns:
    """Makes transitions over `steps` steps. Invariant: `_open` are the last steps, whose returns are not yet complete."""

    def __init__(self, steps: int, shown: bool) -> None:
        """`shown`: the actions are demonstrated by a rule."""
        self._steps = steps
        self._shown = shown
        self._open: list[Transitions] = []

    def step(
        self,
        before: Mapping[str, npt.NDArray[Any]],
        rewards: npt.NDArray[np.float64],
        gammas: npt.NDArray[np.float64],
        after: Mapping[str, npt.NDArray[Any]],
    ) -> Transitions | None:
        """Take in a step of all environments; return the transitions that are complete now, None where there are none.

        `before` has what each environment showed (`seen`), its `masks`, its `actions`, and whether the step is `kept`; `after` has
        what followed, `seen` and `masks`. A gamma of 0 ends an episode: nothing after it counts, so a new episode needs no care.
        """
        actions = before["actions"]
        self._open.append(
            {
                "seen": before["seen"].astype(np.float16),
                "masks": before["masks"],
                "actions": actions,
                "returns": np.zeros(len(actions)),
                "gammas": np.ones(len(actions)),
                "kept": before["kept"].copy(),
            }
        )
        for row in self._open:
            row["returns"] += row["gammas"] * rewards
            row["gammas"] *= gammas
        if len(self._open) < self._steps:
            return None
        first = self._open.pop(0)
        keep = first.pop("kept") & (first["masks"].sum(1) > 1)
        if not keep.any():
            return None
        rows = {
            **first,
            "next_seen": after["seen"].astype(np.float16),
            "next_masks": after["masks"],
            "shown": np.full(len(actions), self._shown),
        }
        rows |= {name: rows[name].astype(np.float32) for name in ("returns", "gammas")}
        return {name: column[keep] for name, column in rows.items()}
