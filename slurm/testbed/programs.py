"""Headway's programs and their settings files, as an installation uses them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class InstallationError(Exception):
    """A process of Headway did not come up: the text has the end of its log."""


def program(name: str) -> list[str]:
    """Return the command line of one of Headway's programs, from the environment in which this process runs."""
    return [str(Path(sys.executable).with_name(name))]


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """Write a settings file, at once: a process that reads it meanwhile finds the file of before.

    TOML and JSON write strings, numbers, booleans and lists of them alike.
    """
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    new.replace(path)
