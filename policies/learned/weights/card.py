"""The model card: the description of a file of weights, as JSON beside it."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from policies.documents import is_number, is_version, short
from policies.errors import WeightsError
from policies.learned.weights.renamed_fields import current_names
from policies.learned.weights.source_commit import commit_of
from policies.learned.weights.trained_range import QUANTITIES, TrainedRange

FORMAT = 1
Setting: TypeAlias = bool | int | float | str
_RANGE = "trained_range"
_REMAKE = "train again, or take weights and card from one place and one version of Headway"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model card. Invariant: every entry can be written as JSON and is read back equal; no number in it is NaN or infinite.

    A training starts with a card that has no results; `weights.save` enters the last two, `format` never changes.
    """

    system: str
    """The learned system, as users name it."""
    recipe: Mapping[str, Setting]
    """Hyper-parameters."""
    seed: int
    encoder: str
    """The encoder from clusters to arrays: name/version. The version changes whenever the arrays change their meaning."""
    shapes: tuple[str, ...]
    """Clusters that the weights were trained for, in the encoder's words, for example 4x8."""
    data: str
    """A phrase that names the training data."""
    data_sha256: str
    """Digest of that data, made by `digest`."""
    versions: Mapping[str, str]
    """Versions of headway, python and torch; and `commit`, in a checkout of Headway's source."""
    trained_range: TrainedRange = field(default_factory=dict)
    """Smallest and largest value of each quantity in training traces; empty in cards of earlier versions."""
    results: Mapping[str, float] = field(default_factory=dict)
    """Validation results: figure -> value. Trainings add two numbers of rounds of reinforcement learning or search: `round`, after
    which these weights were validated (0: before those), and `last_round`, after which the training ended or was stopped (the
    last checkpoint, if it was killed)."""
    weights_sha256: str = ""
    """Digest of the file of weights."""
    parameters: int = 0
    """Number of parameters in that file."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Raises WeightsError for an invalid entry."""
        _check({each.name: getattr(self, each.name) for each in fields(self)}, "model card", "correct it in the recipe")

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {name: dict(values[name]) for name in ("recipe", "versions", _RANGE, "results")}
        if not values[_RANGE]:
            del values[_RANGE]  # so that earlier versions read the card
        return json.dumps({"format": values.pop("format"), **values}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> ModelCard:
        """Read a card strictly. Raises WeightsError that begins with `where`."""
        values = _parse(text, where)
        found = values.get("format")
        if not is_version(found, FORMAT):
            said = f"a card of format {_shortened(found)}" if found != FORMAT else f"format is {found!r}"
            raise WeightsError(f"{where}: {said}, this Headway reads {FORMAT}; {_REMAKE}")
        known = {each.name for each in fields(cls)}
        values.setdefault(_RANGE, {})
        for name in sorted(values.keys() ^ known):
            fault = "there is no such key" if name in values else "missing"
            raise WeightsError(f"{where}: {short(name)}: {fault}; {_REMAKE}")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        if isinstance(values[_RANGE], dict):
            values[_RANGE] = {
                name: tuple(each) if isinstance(each, list) else each for name, each in values[_RANGE].items()
            }
        _check(values, where, _REMAKE)
        return cls(**values | {"recipe": current_names(values["system"], values["recipe"])})


def draft(
    *,
    system: str,
    recipe: object,
    seed: int,
    encoder: str,
    shapes: Iterable[str],
    data: str,
    data_sha256: str,
    trained_range: TrainedRange | None = None,
) -> ModelCard:
    """Return the card of a training that begins. `recipe` is the recipe's dataclass, or a mapping."""
    return ModelCard(
        system=system,
        recipe=settings_of(recipe),
        seed=seed,
        encoder=encoder,
        shapes=tuple(shapes),
        data=data,
        data_sha256=data_sha256,
        versions=versions(),
        trained_range=trained_range or {},
    )


def settings_of(recipe: object) -> dict[str, Setting]:
    """Return a recipe's fields as a card has them: numbers and texts unchanged, all else as an equivalent text.

    Raises TypeError for a field without such a text.
    """
    if isinstance(recipe, Mapping):
        return {str(name): _setting(str(name), value) for name, value in recipe.items()}
    if is_dataclass(recipe):
        return {each.name: _setting(each.name, getattr(recipe, each.name)) for each in fields(recipe)}
    raise TypeError(f"a recipe is a dataclass or a mapping, not {type(recipe).__name__}")


def versions() -> dict[str, str]:
    """Return the versions that a training runs on; the commit only in a checkout of Headway's source."""
    found = {
        "headway": metadata.version("headway-scheduler"),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }
    return {**found, "commit": commit} if (commit := commit_of(Path(__file__))) else found


def digest(*parts: bytes | Path) -> str:
    """Return the SHA-256 of one part, as `sha256sum` does; of several parts that of their concatenated digests, in this order."""
    each = [hashlib.sha256(part.read_bytes() if isinstance(part, Path) else part) for part in parts]
    return each[0].hexdigest() if len(each) == 1 else hashlib.sha256(b"".join(one.digest() for one in each)).hexdigest()


def _setting(name: str, value: object) -> Setting:
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return _setting(name, value.value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return ", ".join(str(_setting(name, each)) for each in value)
    raise TypeError(f"recipe field {name} is a {type(value).__name__}; a card holds numbers, texts and tuples of them")


def _parse(text: str, where: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(entries := dict(pairs)) < len(pairs):
            raise ValueError("a key appears twice")
        return entries

    def never(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    try:
        values = json.loads(text, object_pairs_hook=once, parse_constant=never)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{where}: not a model card: {short(error)}; {_REMAKE}") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{where}: not a model card: no JSON object; {_REMAKE}")
    return values


def _check(values: Mapping[str, object], where: str, mend: str) -> None:
    for name, (form, fits) in _FORMS.items():
        if not fits(values[name]):
            raise WeightsError(f"{where}: {name} is {_shortened(values[name])}, not {form}; {mend}")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_setting(value: object) -> bool:
    return isinstance(value, bool | str) or is_number(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_table(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) and fits(each) for key, each in value.items())

    return check


def _is_range(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_number, value)) and bool(value[0] <= value[1])


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


_FORMS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "format": (str(FORMAT), lambda value: _is_whole(value) and value == FORMAT),
    "system": ("a text that is not empty", lambda value: _is_text(value) and value != ""),
    "recipe": ("a table of numbers and texts", _is_table(_is_setting)),
    "seed": ("a whole number, 0 or more", _is_whole),
    "encoder": (
        "name/version",
        lambda value: isinstance(value, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", value) is not None,
    ),
    "shapes": (
        "a list of texts",
        lambda value: isinstance(value, tuple) and all(_is_text(each) for each in value),
    ),
    "data": ("a text", _is_text),
    "data_sha256": ("64 hexadecimal digits", _is_digest),
    "versions": ("a table of texts", _is_table(_is_text)),
    _RANGE: (
        f"a table of [smallest, largest] of {', '.join(QUANTITIES)}",
        lambda value: _is_table(_is_range)(value) and isinstance(value, Mapping) and set(value) <= set(QUANTITIES),
    ),
    "results": ("a table of finite numbers", _is_table(is_number)),
    "weights_sha256": ("64 hexadecimal digits", lambda value: value == "" or _is_digest(value)),
    "parameters": ("a whole number, 0 or more", _is_whole),
}
"""For every entry its valid form, in words and as a check."""
