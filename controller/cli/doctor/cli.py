"""`headway doctor`: the checks of controller.cli.doctor.look, and one finding when the settings cannot be read."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from controller.base.config import DEFAULT_PATH, load_settings
from controller.base.errors import ConfigurationError


def examine(config: Path | None) -> list[dict[str, Any]]:
    """Return every finding as a dictionary with the names of its fields."""
    from controller.cli.doctor.look import checks

    path = DEFAULT_PATH if config is None else config
    try:
        settings = load_settings(path)
    except ConfigurationError as error:
        # The text has the mend: it names file and key.
        return [{"check": "settings", "level": "error", "what": str(error), "mend": ""}]
    return [
        {name: value.value if isinstance(value, Enum) else value for name, value in asdict(finding).items()}
        for finding in checks(settings)
    ]
