"""Recipes from the command line: fields of a dataclass as name=value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, replace
from typing import Any

from policies.errors import TrainingError
from policies.learned.training.systems import TrainableSystem
from policies.learned.weights.renamed_fields import current_names

PRESET = "preset"
"""The setting that chooses one of the system's presets."""
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def recipe_of(system: TrainableSystem, settings: Iterable[str] = (), rounds: int | None = None) -> Any:
    """Return the system's recipe, or the preset of preset=NAME, with those fields, each as name=value.

    Raises TrainingError that lists the fields, or the presets.
    """
    texts = current_names(system.name, dict(_parted(text) for text in settings))
    if rounds is not None:
        if system.rounds in texts:
            raise TrainingError(f"--rounds and --set {system.rounds} set the same field; leave one out")
        texts[system.rounds] = str(rounds)
    defaults = _preset(system, texts.pop(PRESET, None))
    known: Mapping[str, Field[Any]] = {each.name: each for each in fields(system.recipe)}
    for name in texts:
        if name not in known:
            also = f", and presets: {', '.join(system.presets)}" if system.presets else ""
            raise TrainingError(f"the recipe of {system.name} has no field {name!r}; it has {', '.join(known)}{also}")
    return replace(
        defaults, **{name: _value(text, known[name], getattr(defaults, name)) for name, text in texts.items()}
    )


def _preset(system: TrainableSystem, name: str | None) -> Any:
    if name is None:
        return system.recipe()
    if name not in system.presets:
        there = ", ".join(system.presets) or "none"
        raise TrainingError(f"{system.name} has no preset {name!r}; its presets: {there}")
    return system.presets[name]


def _parted(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals and value):
        raise TrainingError(f"--set {text!r} is not a setting; give name=value")
    return name, value


def _value(text: str, field: Field[Any], like: object) -> object:
    """Return the text as a value of the default's type: slashes part a tuple, and `none` is None where that is its default."""
    if field.default is None and text.lower() == "none":
        return None
    try:
        if isinstance(like, tuple):
            return tuple(_plain(part, like[0] if like else "") for part in text.split("/"))
        return _plain(text, like)
    except (KeyError, ValueError):
        raise TrainingError(
            f"{field.name} cannot be {text!r}; give something like {field.name}={_shown(like)}"
        ) from None


def _plain(text: str, like: object) -> object:
    match like:
        case bool():
            return _WORDS[text.lower()]
        case int():
            return int(text)
        case float():
            return float(text)
        case None:
            return float(text) if text.lower() not in _WORDS else _WORDS[text.lower()]
    return text


def _shown(like: object) -> str:
    if isinstance(like, tuple):
        return "/".join(map(str, like))
    return "none" if like is None else str(like).lower() if isinstance(like, bool) else str(like)
