"""Settings of the watchdog: read as the controller reads them; from a file with mistakes, the valid keys.

A mistake in controller.toml must not keep jobs held, because it also keeps a controller from starting. The watchdog needs only the
path of the lease and the way to Slurm. It uses the valid keys, and defaults for the others. If `runtime_dir` is not the default and
cannot be read, it finds no lease in the default folder, and releases the held jobs: Slurm then schedules them, which changes their
order but loses no job.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import structlog
from pydantic import ValidationError

from controller.base.config import ControllerSettings, load_settings
from controller.base.errors import ConfigurationError
from policies.documents import DocumentError, parse_toml

log = structlog.get_logger(__name__)

_USED = (
    "slurm_client", "slurm_bin", "slurm_conf", "slurm_timeout_s", "stand_by", "runtime_dir", "state_dir", "heartbeat_interval_s",
    "log_level", "log_format",
)  # fmt: skip
_NEEDED: dict[str, Any] = {"partitions": ("unknown",)}
"""A required key with an arbitrary value: the watchdog does not use it, because it finds jobs by their marks."""
_MAX_BYTES = 1 << 20


def watchdog_settings(path: Path) -> tuple[ControllerSettings, str]:
    """Return the settings, and the problem of the file: an empty string when it has none. Never raises or waits."""
    text = ""
    try:
        text = _read(path)
        return load_settings(path), ""
    except ConfigurationError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - no error may keep jobs held
        problem = f"{path}: cannot be read: {error}"
    return _valid_part(text), problem


def _read(path: Path) -> str:
    """Return the text of a regular file. Raises OSError for any other kind: reading a pipe would wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a regular file")
        return os.read(descriptor, _MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _valid_part(text: str) -> ControllerSettings:
    found = dict(_NEEDED)
    for key, value in _values(text).items():
        if key in _USED:
            try:
                ControllerSettings(**_NEEDED, **{key: value})
            except ValidationError:
                continue
            found[key] = value
    return ControllerSettings(**found)


def _values(text: str) -> dict[str, Any]:
    """Return keys and values of the whole file, or of each line that is TOML by itself."""
    try:
        return parse_toml(text)
    except DocumentError:
        pass
    values: dict[str, Any] = {}
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            break  # what follows belongs to a table
        try:
            values.update(parse_toml(line))
        except DocumentError:
            continue
    return values
