"""Settings of a program from one TOML file, strictly: every error names the file and the key, and says what to do."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Settings = TypeVar("Settings", bound=BaseModel)


def read_settings(
    kind: type[Settings], path: Path, failure: type[Exception], *, none_there: str, example: str
) -> Settings:
    """Read and check the file. Raises `failure`.

    `none_there` says what to do where there is no such file, `example` is a line that sets a required key.
    """
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise failure(f"{path}: no such file; {none_there}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise failure(f"{path}: cannot be read: {error}; check its owner and mode") from error
    except tomllib.TOMLDecodeError as error:
        raise failure(f"{path}: not valid TOML: {error}") from error
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise failure(_explain(path, error, sorted(kind.model_fields), example)) from error


def _explain(path: Path, error: ValidationError, known: list[str], example: str) -> str:
    lines = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"])
        match item["type"]:
            case "extra_forbidden":
                lines.append(f"{path}: {key}: no such key; keys are {', '.join(known)}")
            case "missing":
                lines.append(f"{path}: {key}: missing; add it, for example {example}")
            case _:
                lines.append(f"{path}: {key}: {item['msg']}, not {item['input']!r}")
    return "\n".join(lines)
