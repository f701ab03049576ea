"""Checks that the recipes of SCHED2 share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.errors import TrainingError


def above_zero(recipe: object, *names: str) -> None:
    """Raise TrainingError for the first of these fields that is not above 0."""
    for name in names:
        if not getattr(recipe, name) > 0:
            raise TrainingError(f"{name} is {getattr(recipe, name)}; give more than 0")


def shares(recipe: object, *names: str) -> None:
    """Raise TrainingError for the first of these fields that is not from 0 to 1."""
    for name in names:
        if not 0 <= getattr(recipe, name) <= 1:
            raise TrainingError(f"{name} is {getattr(recipe, name)}; give a number from 0 to 1")


def known_words(recipe: object, words: Mapping[str, Sequence[str]]) -> None:
    """Raise TrainingError for the first field that has none of its words."""
    for name, known in words.items():
        if (value := getattr(recipe, name)) not in known:
            raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")
