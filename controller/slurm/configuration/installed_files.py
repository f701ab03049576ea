"""Files that Headway installs into Slurm: names, versions, and how they are recognized.

`headway-setup slurm` installs them from the folder slurm/, `headway doctor` checks whether they are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

VERSION = 11
"""Version in the first lines of every installed file. It is raised with every change that must reach installed copies."""

LUA_NAME = "job_submit.lua"
"""The name that Slurm looks for, beside slurm.conf."""
CHAINED_LUA_NAME = "headway.lua"
"""Name of our script where a site has its own job_submit.lua, which loads ours."""
HOOKS_FOLDER = "headway"
"""Folder beside slurm.conf in which our hooks are installed."""
EVENT_HOOK = "slurmctld_event.sh"
TASK_PROLOG = "task_prolog.sh"

JOB_SOCKET = Path("/run/headway-agent/job.sock")
"""Default path of the socket on which a node's agent listens for jobs."""

RUNTIME_DIR = Path("/run/headway")
"""Default runtime folder of the controller."""

EVENT_KEYS = ("PrologSlurmctld", "EpilogSlurmctld")
"""Keys of slurm.conf that the event hook belongs to."""

_VERSION_LINE = re.compile(r"^(?:--|#) Headway [^\n]*, version ([0-9]{1,6})$", re.MULTILINE)
_RUNTIME_DIR = re.compile(r'^(local RUNTIME_DIR = "|RUNTIME_DIR=)([^"\n]*)("?)$', re.MULTILINE)
_SIDE_LINE = re.compile(r"^JOB_SIDE=([^\n]*)$", re.MULTILINE)
_SOCKET_LINE = re.compile(r"^JOB_SOCKET=([^\n]*)$", re.MULTILINE)
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@,=-]*")


def script_version(text: str) -> int | None:
    """Return the version of a file of ours; None when it is not ours."""
    found = _VERSION_LINE.search("\n".join(text.splitlines()[:3]))
    return int(found[1]) if found else None


def calls_ours(text: str, ours: str) -> bool:
    """Return whether a site's own hook, a script of a shell, names Headway's outside of lines that are comments."""
    return any(ours in line for line in text.splitlines() if not line.lstrip().startswith("#"))


def runtime_dir_of(text: str) -> Path | None:
    """Return the runtime folder that an installed script uses; None when it names none."""
    found = _RUNTIME_DIR.search(text)
    return Path(found[2]) if found else None


def installed_runtime_dir(folder: Path, read: Callable[[Path], str | None]) -> Path:
    """Return the runtime folder of the scripts beside a slurm.conf, so that they stay connected; without scripts, the default.

    `read` returns the text of a file, None when it does not exist. The script that holds jobs comes before the hook.
    """
    for path in (folder / LUA_NAME, folder / CHAINED_LUA_NAME, folder / HOOKS_FOLDER / EVENT_HOOK):
        text = read(path) or ""
        found = runtime_dir_of(text) if script_version(text) is not None else None
        if found is not None and is_plain(found):
            return found
    return RUNTIME_DIR


def with_runtime_dir(text: str, runtime_dir: Path) -> str:
    """Return the script, changed to another runtime folder."""
    return _RUNTIME_DIR.sub(lambda found: f"{found[1]}{runtime_dir}{found[3]}", text)


def with_job_side(text: str, job_side: Path | None, job_socket: Path | None) -> str:
    """Return the TaskProlog, changed to another folder that jobs load and another socket of the agent; None leaves one as it is."""
    if job_side is not None:
        text = _SIDE_LINE.sub(lambda _: f"JOB_SIDE={job_side}", text)
    if job_socket is not None:
        text = _SOCKET_LINE.sub(lambda _: f"JOB_SOCKET={job_socket}", text)
    return text


def job_side_of(text: str) -> Path | None:
    """Return the folder that an installed TaskProlog has jobs load; None when it names none."""
    found = _SIDE_LINE.search(text)
    return Path(found[1]) if found and found[1] else None


def job_socket_of(text: str) -> Path | None:
    """Return the socket of the agent that an installed TaskProlog gives to jobs; None when it names none."""
    found = _SOCKET_LINE.search(text)
    return Path(found[1]) if found and found[1] else None


def is_plain(path: Path) -> bool:
    """Return whether the path may be written into our scripts: absolute, without characters special to a shell or PYTHONPATH."""
    return _PLAIN_PATH.fullmatch(str(path)) is not None
