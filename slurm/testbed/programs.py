"""Headway's programs and their settings files, as an installation uses them."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.base.lease import is_stale, read_lease
from slurm.processes import tie


class InstallationError(Exception):
    """A process of Headway did not come up: the text has the end of its log."""


def program(name: str) -> list[str]:
    """Return the command line of one of Headway's programs, from the environment in which this process runs."""
    return [str(Path(sys.executable).with_name(name))]


def tied_to_us() -> tuple[str, ...]:
    """Return words before a command line: Ctrl-C does not reach the process, and the kernel kills it together with this one.

    Empty where util-linux is not installed, as in very small containers.
    """
    return ("setsid", *tie()) if all(map(shutil.which, ("setsid", "setpriv"))) else ()


def as_user(name: str) -> tuple[str, ...]:
    """Return words before a command line that run it as another user, with root's access to files.

    A change of the user ends the tie of `tied_to_us`, so that it is tied again.
    """
    caps = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return (
        "setpriv",
        f"--reuid={name}",
        f"--regid={pwd.getpwnam(name).pw_gid}",
        "--init-groups",
        *caps,
        "--pdeathsig=KILL",
        "--",
    )


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """Write a settings file, at once: a process that reads it meanwhile finds the file of before.

    TOML and JSON write strings, numbers, booleans and lists of them alike.
    """
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    new.chmod(0o644)  # users' commands read the controller's, whatever the umask is
    new.replace(path)


def own_environment() -> dict[str, str]:
    """Return the variables by which a program started elsewhere imports the same packages as this process."""
    return {key: value for key, value in os.environ.items() if key == "PYTHONPATH"}


class NextLease:
    """The next lease that a controller writes. Create it before the controller is started."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A controller that has just been stopped may have left a lease of the same second.
        self._before_ns = _written_ns(path)

    def written(self) -> bool:
        """Return whether it has been written, and is fresh."""
        return _written_ns(self._path) != self._before_ns and not is_stale(read_lease(self._path), time.time())


def _written_ns(path: Path) -> int:
    """Return the time at which the file was written, in nanoseconds; -1 when there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1
