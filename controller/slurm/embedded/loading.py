"""The description of an embedded cluster from its file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controller.base.errors import ConfigurationError
from controller.slurm.embedded.ctld.slowdown import slowdown_models
from controller.slurm.embedded.description import ClusterDescription


def load_cluster(path: Path) -> ClusterDescription:
    """Read and check the file. Raises ConfigurationError that names file, key and mend."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}; embedded_cluster must name a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error
    if isinstance(values.get("profiles"), str):
        values["profiles"] = path.parent / values["profiles"]
    try:
        description = ClusterDescription.model_validate(values)
    except ValidationError as error:
        lines = (f"{path}: {'.'.join(map(str, item['loc'])) or 'cluster'}: {item['msg']}" for item in error.errors())
        raise ConfigurationError("\n".join(lines)) from error
    try:
        slowdown_models(description)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return description
