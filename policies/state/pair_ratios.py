"""Throughput that jobs lose beside each other: a table of measured ratios, with fall-backs for pairs that were not measured.

A key is a model, or `model,GPUs,nodes`; a ratio is the throughput of the first of two that share a node, as a share of what it has
alone (contention_rl, section III: 1 / contention sensitivity). Simulated clusters slow jobs down by this table, policies predict
by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import TypeVar

Pair = tuple[str, str]
"""Keys of the job that is slowed down and of its neighbour."""
K = TypeVar("K")
_MOST_KNOWN = 65_536


@lru_cache(_MOST_KNOWN)  # a trace has few models and many jobs; on a cluster users invent names for months
def key_of(name: str) -> str:
    """Return the key of a model: VGG16, vgg-16 and vgg_16 have the same."""
    return re.sub(r"[^a-z0-9,]+", "", name.lower())


def model_of(key: str) -> str:
    """Return the model in a key."""
    return key.partition(",")[0]


def mean_losses(pairs: Mapping[Pair, float]) -> dict[str, float]:
    """Return for each model the share of throughput that it loses beside a neighbour, averaged over its measured pairs."""
    losses: dict[str, list[float]] = defaultdict(list)
    for (target, _), ratio in pairs.items():
        losses[model_of(target)].append(1.0 - ratio)
    return {target: sum(values) / len(values) for target, values in losses.items()}


def medians(values: Mapping[K, Sequence[float]]) -> dict[K, float]:
    """Return the median of each list."""
    return {key: median(numbers) for key, numbers in values.items()}


class Ratios:
    """The table with its fall-backs.

    A pair is looked up by its keys, then by its models alone; where the table has no entry for two models as such, the median of
    its entries for them counts. For other pairs it is the median of the entries with the same target, else with the same neighbour,
    else of all.
    """

    def __init__(self, pairs: Mapping[Pair, float]) -> None:
        by_model: dict[Pair, list[float]] = defaultdict(list)
        of_target: dict[str, list[float]] = defaultdict(list)
        of_other: dict[str, list[float]] = defaultdict(list)
        for (target, other), ratio in pairs.items():
            by_model[model_of(target), model_of(other)].append(ratio)
            of_target[model_of(target)].append(ratio)
            of_other[model_of(other)].append(ratio)
        self._exact = pairs
        self._by_model = {
            **medians(by_model),
            **{pair: ratio for pair, ratio in pairs.items() if "," not in "".join(pair)},
        }
        self._of_target = medians(of_target)
        self._of_other = medians(of_other)
        self._all = median(pairs.values()) if pairs else 1.0
        self._known: dict[Pair, float] = {}
        """Bound: `_MOST_KNOWN`."""

    def of(self, target: str, other: str) -> float:
        """Return the ratio of two keys, each `model,GPUs,nodes` or `model`; never above 1."""
        known = self._known.get((target, other))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[target, other] = self._looked_up(target, other)
        return known

    def measured(self, target: str, other: str) -> bool:
        """Return whether two models were measured beside each other, with any numbers of GPUs and nodes."""
        return (target, other) in self._by_model

    def _looked_up(self, target: str, other: str) -> float:
        exact = self._exact.get((target, other))
        if exact is None:
            exact = self._by_model.get((model_of(target), model_of(other)))
        if exact is None:
            exact = self._of_target.get(model_of(target), self._of_other.get(model_of(other), self._all))
        return min(1.0, exact)
