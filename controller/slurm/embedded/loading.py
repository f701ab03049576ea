"""Reads the description of an embedded cluster from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controller.base.errors import ConfigurationError
from controller.slurm.embedded.ctld.slowdown import slowdown_models
from controller.slurm.embedded.description import ClusterDescription
from policies.documents import DocumentError, parse_toml, read_text, short
from policies.serving.runtime.settings_file import explain_few


def load_cluster(path: Path) -> ClusterDescription:
    """Read and check the file. Raises ConfigurationError that names file, key and mend."""
    try:
        text = read_text(path)
    except (OSError, DocumentError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}; embedded_cluster must name a TOML file") from error
    try:
        values: dict[str, Any] = parse_toml(text)
    except DocumentError as error:
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error
    if isinstance(values.get("profiles"), str):
        values["profiles"] = path.parent / values["profiles"]
    try:
        description = ClusterDescription.model_validate(values)
    except ValidationError as error:
        named = ((short(".".join(map(str, item["loc"]))) or "cluster", short(item["msg"])) for item in error.errors())
        raise ConfigurationError(explain_few([f"{path}: {key}: {problem}" for key, problem in named])) from error
    try:
        slowdown_models(description)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return description
