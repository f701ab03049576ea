"""Profiles in files: written as JSON, read as JSON or TOML, in the same structure.

    {"format": 1,
     "models": {"vgg16": {"compute_s": 0.09, "bytes": 553600000.0, "locality": [1, 1, 0.17, 0.15], …}, …},
     "pairs": [["fsdp,8,2", "moe,8,2", 0.51], …],
     "interference": {"alpha": [0.05, 0.25, 0], "beta": [4, 0], "constant": -0.05, "most_cores": 10},
     "ring": {"small_s": 0.02829, "large_s": 0.13977, "per_rack": 0.2},
     "default": ""}

All keys but `models` are optional; their default is that of the papers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from policies.documents import is_version, parse_json, parse_toml
from simulator.errors import SlowdownError
from simulator.slowdown.profiles.model_profiles import (
    MeasuredInterference,
    ModelProfile,
    ModelProfiles,
    Pair,
    RingTime,
    key_of,
)
from simulator.slowdown.profiles.papers import INTERFERENCE, PAIRS

FORMAT = 1
T = TypeVar("T", ModelProfile, MeasuredInterference, RingTime)
_KEYS = {"format", "models", "pairs", "interference", "ring", "default"}
_LENGTHS = {"locality": 4, "scaling": 2, "servers": 5, "alpha": 3, "beta": 2}
_MOST = 1e300
"""Largest number; larger whole numbers are not floating-point numbers."""
_SIGNED = {"alpha", "beta", "constant"}
"""Coefficients that may be negative."""


def save_profiles(profiles: ModelProfiles, path: Path | str) -> None:
    """Write the profiles to a file, and replace it if it exists."""
    table = {
        "format": FORMAT,
        "models": {
            name: {key: value for key, value in asdict(profile).items() if value is not None}
            for name, profile in sorted(profiles.models.items())
        },
        "pairs": [[*pair, ratio] for pair, ratio in sorted(profiles.pairs.items())],
        "interference": {key: value for key, value in asdict(profiles.interference).items() if value is not None},
        "ring": asdict(profiles.ring),
        "default": profiles.default,
    }
    Path(path).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def load_profiles(path: Path | str) -> ModelProfiles:
    """Read the profiles of a file. Raises SlowdownError."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        table = parse_toml(text) if path.suffix == ".toml" else parse_json(text)
    except OSError as error:
        raise SlowdownError(f"cannot be read ({error.strerror})", mend="check the path", path=path) from error
    except ValueError as error:
        raise SlowdownError(f"is not valid JSON or TOML ({error})", mend="correct it there", path=path) from error
    try:
        return _profiles(_table(table, "the file"))
    except SlowdownError as error:
        raise SlowdownError(error.reason, mend=error.mend, path=path) from None


def _profiles(table: Mapping[str, Any]) -> ModelProfiles:
    if not is_version(table.get("format"), FORMAT):
        raise SlowdownError(f"format is {table.get('format')!r}", mend=f"this version reads format = {FORMAT}")
    for key in table:
        if key not in _KEYS:
            raise SlowdownError(f"{key!r} is not a key", mend=f"the keys are {', '.join(sorted(_KEYS))}")
    models = {
        name: _record(ModelProfile, _table(value, f"models.{name}"), f"models.{name}")
        for name, value in _table(table.get("models", {}), "models").items()
    }
    if not models:
        raise SlowdownError("models is empty", mend="give at least one model")
    if not isinstance(listed := table.get("pairs", []), list):
        raise SlowdownError(f"pairs is {str(listed)[:80]}", mend="give a list of [target, other, ratio]")
    pairs = dict(_pair(item, at) for at, item in enumerate(listed)) if "pairs" in table else PAIRS
    interference, ring = INTERFERENCE, RingTime()
    if "interference" in table:
        interference = _record(MeasuredInterference, _table(table["interference"], "interference"), "interference")
    if "ring" in table:
        ring = _record(RingTime, _table(table["ring"], "ring"), "ring")
    return ModelProfiles(models, pairs, interference, ring, str(table.get("default", "")))


def _pair(item: object, at: int) -> tuple[Pair, float]:
    if not isinstance(item, list) or len(item) != 3 or not all(isinstance(name, str) for name in item[:2]):
        raise SlowdownError(f"pairs[{at}] is {item!r}", mend="give [target, other, ratio]")
    ratio = _number(item[2], f"pairs[{at}]")
    if ratio <= 0:
        raise SlowdownError(f"pairs[{at}] has the ratio {ratio}", mend="give one above 0")
    return (key_of(item[0]), key_of(item[1])), ratio


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SlowdownError(f"{where} is not a table", mend="give keys and values")
    return value


def _record(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Read a dataclass of numbers and tuples of numbers."""
    known = {item.name: item for item in fields(kind)}
    for key in table:
        if key not in known:
            raise SlowdownError(f"{where}.{key} is not a key", mend=f"the keys are {', '.join(sorted(known))}")
    for name, item in known.items():
        if item.default is MISSING and name not in table:
            raise SlowdownError(f"{where}.{name} is missing", mend="give a number")
    return kind(**{key: _value(value, key, f"{where}.{key}") for key, value in table.items()})


def _value(value: object, key: str, where: str) -> Any:
    length = _LENGTHS.get(key)
    if length is not None:
        if not isinstance(value, list) or len(value) != length:
            raise SlowdownError(f"{where} is {value!r}", mend=f"give {length} numbers")
        numbers = tuple(_number(number, where) for number in value)
    else:
        numbers = (_number(value, where),)
    if key not in _SIGNED and min(numbers) < 0:
        raise SlowdownError(f"{where} is {value!r}", mend="give no number below 0")
    if (key == "compute_s" and not numbers[0] > 0) or (key == "locality" and not min(numbers) > 0):
        raise SlowdownError(f"{where} is {value!r}", mend="give only numbers above 0")
    if key in {"overlap", "hiding", "speed_sensitivity"} and numbers[0] > 1:
        raise SlowdownError(f"{where} is {value!r}", mend="give a share from 0 to 1")
    if length is not None:
        return numbers
    return int(numbers[0]) if key == "batch" else numbers[0]


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
        raise SlowdownError(f"{where} is {value!r}", mend="give a number")
    return float(value)
