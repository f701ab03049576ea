"""Files that Headway installs into Slurm: names, versions, and how they are recognized.

`headway-setup slurm` installs them from the folder slurm/, `headway doctor` looks whether they are there.
"""

from __future__ import annotations

import re
from pathlib import Path

VERSION = 4
"""In the first lines of every installed file. Raised with every change that must reach installed copies."""

LUA_NAME = "job_submit.lua"
"""The name that Slurm looks for, beside slurm.conf."""
CHAINED_LUA_NAME = "headway.lua"
"""Our script beside a site's own job_submit.lua, which loads it."""
HOOKS_FOLDER = "headway"
"""Folder beside slurm.conf that our hooks are installed in."""
EVENT_HOOK = "slurmctld_event.sh"
TASK_PROLOG = "task_prolog.sh"

JOB_SOCKET = Path("/run/headway-agent/job.sock")
"""Where a node's agent waits for jobs, unless its settings say otherwise."""

EVENT_KEYS = ("PrologSlurmctld", "EpilogSlurmctld")
"""Keys of slurm.conf that the event hook belongs to."""

_VERSION_LINE = re.compile(r"^(?:--|#) Headway [^\n]*, version ([0-9]{1,6})$", re.MULTILINE)
_RUNTIME_DIR = re.compile(r'^(local RUNTIME_DIR = "|RUNTIME_DIR=)([^"\n]*)("?)$', re.MULTILINE)
_SIDE_LINE = re.compile(r"^JOB_SIDE=[^\n]*$", re.MULTILINE)
_SOCKET_LINE = re.compile(r"^JOB_SOCKET=[^\n]*$", re.MULTILINE)
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@,=-]*")
_LUA_COMMENT = re.compile(r"--[^\n]*")


def script_version(text: str) -> int | None:
    """Version of a file of ours; None when it is not ours."""
    found = _VERSION_LINE.search("\n".join(text.splitlines()[:3]))
    return int(found[1]) if found else None


def runtime_dir_of(text: str) -> Path | None:
    """The runtime folder that an installed script uses; None when it names none."""
    found = _RUNTIME_DIR.search(text)
    return Path(found[2]) if found else None


def with_runtime_dir(text: str, runtime_dir: Path) -> str:
    """The script for another runtime folder."""
    return _RUNTIME_DIR.sub(lambda found: f"{found[1]}{runtime_dir}{found[3]}", text)


def with_job_side(text: str, job_side: Path, job_socket: Path) -> str:
    """TaskProlog for nodes where jobs load that folder, and the agent listens on that socket."""
    text = _SIDE_LINE.sub(lambda _: f"JOB_SIDE={job_side}", text)
    return _SOCKET_LINE.sub(lambda _: f"JOB_SOCKET={job_socket}", text)


def is_plain(path: Path) -> bool:
    """Return whether the path may be written into our scripts: absolute, without characters special to a shell or PYTHONPATH."""
    return _PLAIN_PATH.fullmatch(str(path)) is not None


def loads_ours(text: str) -> bool:
    """Return whether a site's own job_submit.lua loads Headway's."""
    code = _LUA_COMMENT.sub("", text)
    return re.search(r"""dofile\s*\(?\s*["'][^"']*headway\.lua["']""", code) is not None
