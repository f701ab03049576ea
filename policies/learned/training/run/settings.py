"""settings.json of a training: its settings, with which it also continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from policies.documents import DocumentError, is_version, parse_json, read_text
from policies.errors import TrainingError
from policies.learned.weights.files import write_whole
from policies.learned.weights.renamed_fields import current_names

FORMAT = 1
_DESCRIPTION = "card.data"
"""The name of the data is not compared: `card.data_sha256` identifies the data."""
_RECIPE = "card.recipe."


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings. Raises OSError."""
    write_whole(path, (json.dumps({"format": FORMAT, **settings}, indent=2) + "\n").encode())


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings. Raises TrainingError for anything that `write_settings` did not write."""
    try:
        settings = parse_json(read_text(path))
    except (OSError, DocumentError) as error:
        raise TrainingError(f"{path}: cannot be read: {error}; begin again in another folder") from error
    if not isinstance(settings, dict) or not is_version(settings.pop("format", None), FORMAT):
        raise TrainingError(f"{path}: not of format {FORMAT}; use the Headway that began it, or another folder")
    match settings.get("card"):
        case {"system": str(system), "recipe": dict(recipe), **rest}:
            settings["card"] = {**rest, "system": system, "recipe": current_names(system, recipe)}
    return settings


def check_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Raise TrainingError where settings differ; return lines about versions that differ from those at the beginning, and about
    fields of the recipe that the version of the beginning did not have."""
    old, new = dict(_flat(there, "")), dict(_flat(here, ""))
    other = [
        f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name != _DESCRIPTION
    ]
    newer = [f"{name} was not there" for name in new.keys() - old.keys() if name.startswith(_RECIPE)]
    allowed = [line for line in other if line.startswith("card.versions.") or line.partition(", ")[0] in newer]
    if different := [line for line in other if line not in allowed]:
        raise TrainingError(f"{path}: {'; '.join(different)}: give what it began with, or another folder")
    return [f"{line.removeprefix('card.')}: weights may differ from those of one version" for line in allowed]


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
