"""Settings of a program from one TOML file, strictly: every error names the file and the key, and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from policies.documents import DocumentError, parse_toml, read_text, short

Settings = TypeVar("Settings", bound=BaseModel)

_NOT_SHOWN = "not_shown"
_MOST_LINES = 20
"""Mistakes that one error names."""


def wrong_secret(problem: str) -> PydanticCustomError:
    """Return the error for a validator whose value may be a secret: unlike that of other keys, it is not shown."""
    return PydanticCustomError(_NOT_SHOWN, "{problem}", {"problem": problem})


def read_settings(
    kind: type[Settings], path: Path, failure: type[Exception], *, none_there: str, example: str
) -> Settings:
    """Read and check the file. Raises `failure`.

    `none_there` says what to do where there is no such file, `example` is a line that sets a required key.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise failure(f"{path}: no such file; {none_there}") from None
    except (OSError, DocumentError) as error:
        raise failure(f"{path}: cannot be read: {error}; check its owner and mode") from error
    try:
        values = parse_toml(text)
    except DocumentError as error:
        raise failure(f"{path}: not valid TOML: {error}") from error
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise failure(_explain(path, error, sorted(kind.model_fields), example)) from error


def explain_few(lines: list[str]) -> str:
    """Return the first lines of an explanation, and the number of the others."""
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"and {more} more"] if more > 0 else [])])


def _explain(path: Path, error: ValidationError, known: list[str], example: str) -> str:
    lines = []
    for item in error.errors():
        key = short(".".join(str(part) for part in item["loc"]))
        match item["type"]:
            case "extra_forbidden":
                lines.append(f"{path}: {key}: no such key; keys are {', '.join(known)}")
            case "missing":
                lines.append(f"{path}: {key}: missing; add it, for example {example}")
            case found if found == _NOT_SHOWN:
                lines.append(f"{path}: {key}: {short(item['msg'])}")
            case _:
                lines.append(f"{path}: {key}: {short(item['msg'])}, not {short(repr(item['input']))}")
    return explain_few(lines)
