"""Turns of policies, and their table: predicted and measured, each against srtf and las, repeat by repeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean, change, mean_as_json

CONTROLS = ("srtf", "las")
_LEAST_PAIRS = 3
"""Repeats from which on an interval is given."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy on the arrivals of one seed; seconds."""

    policy: str
    seed: int
    jct_s: tuple[float, ...]
    makespan_s: float
    """From the first submission to the last end."""

    @property
    def avg_jct_s(self) -> float:
        """Mean over jobs."""
        return float(np.mean(self.jct_s))

    @property
    def p90_jct_s(self) -> float:
        """90th percentile, interpolated linearly between jobs."""
        return float(np.quantile(self.jct_s, 0.9))


def summary(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    """Return a row for each policy, over the seeds on which all of them ran: means, and changes against the controls."""
    by = {(turn.policy, turn.seed): turn for turn in turns}
    policies = list(dict.fromkeys(policy for policy, _ in by))
    seeds = [seed for seed in sorted({seed for _, seed in by}) if all((policy, seed) in by for policy in policies)]
    if not seeds:
        return []
    rows = []
    for policy in policies:
        its = [by[policy, seed] for seed in seeds]
        row: dict[str, Any] = {"policy": policy, "seeds": seeds, "avg_by_seed": [turn.avg_jct_s for turn in its]}
        row["makespan_s"] = float(np.mean([turn.makespan_s for turn in its]))
        for figure in ("avg_jct_s", "p90_jct_s"):
            values = [getattr(turn, figure) for turn in its]
            row[figure] = float(np.mean(values))
            for control in CONTROLS:
                if control in policies and control != policy:
                    against = [getattr(by[control, seed], figure) for seed in seeds]
                    row[f"{figure}_against_{control}"] = _change(values, against)
        rows.append(row)
    return rows


def _change(values: Sequence[float], controls: Sequence[float]) -> dict[str, float | None] | None:
    """Return the mean change over repeats, with an interval where there are at least three."""
    found = change(values, controls)
    if found is not None and len(values) < _LEAST_PAIRS:
        found = Mean(found.mean, None)
    return mean_as_json(found)
