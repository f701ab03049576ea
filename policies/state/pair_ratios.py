"""What jobs lose beside each other, by what they are: a table of measured ratios, and what stands for pairs that are not in it.

A key is a model, or `model,GPUs,nodes`; a ratio is the throughput of the first of two that share a node, as a share of what it has
alone (contention_rl, section III: 1 / contention sensitivity). Simulated clusters slow jobs down by this table, policies predict
by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeVar

Pair = tuple[str, str]
"""Keys of the one who is slowed down and of the one who is near."""
K = TypeVar("K")
_MOST_KNOWN = 65_536
_KEYS: dict[str, str] = {}
"""A trace has few models and many jobs."""


def key_of(name: str) -> str:
    """How a model is looked up: VGG16, vgg-16 and vgg_16 are the same."""
    if not name:
        return ""
    known = _KEYS.get(name)
    if known is None:
        known = _KEYS[name] = re.sub(r"[^a-z0-9,]+", "", name.lower())
    return known


def model_of(key: str) -> str:
    """The model in a key."""
    return key.partition(",")[0]


def mean_losses(pairs: Mapping[Pair, float]) -> dict[str, float]:
    """By model: the throughput that it loses beside a neighbour, averaged over the pairs that it was measured in."""
    losses: dict[str, list[float]] = defaultdict(list)
    for (target, _), ratio in pairs.items():
        losses[model_of(target)].append(1.0 - ratio)
    return {target: sum(values) / len(values) for target, values in losses.items()}


def medians(values: Mapping[K, Sequence[float]]) -> dict[K, float]:
    """The median of each list."""
    return {key: median(numbers) for key, numbers in values.items()}


class Ratios:
    """The table with its fall-backs: a pair is looked up by its keys, then by its models alone (where the table has no number for
    two models as such, the median of its numbers for them); what is not in the table is the median of what it has of the one that
    is, or of all. Only reads, but for what it remembers.
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

    def of(self, target: str, other: str) -> float:
        """The ratio of two, each `model,GPUs,nodes` or `model`; never above 1."""
        known = self._known.get((target, other))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[target, other] = self._looked_up(target, other)
        return known

    def measured(self, target: str, other: str) -> bool:
        """Whether two models were measured beside each other, in whatever numbers of GPUs and nodes."""
        return (target, other) in self._by_model

    def _looked_up(self, target: str, other: str) -> float:
        exact = self._exact.get((target, other))
        if exact is None:
            exact = self._by_model.get((model_of(target), model_of(other)))
        if exact is None:
            exact = self._of_target.get(model_of(target), self._of_other.get(model_of(other), self._all))
        return min(1.0, exact)
