"""Access of `headway doctor` to this machine, behind one small protocol."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import subprocess
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from controller.cli.doctor.controllers import RunningController, running_controllers
from controller.slurm.configuration.lua_check import lua_error

_SYSTEMCTL_TIMEOUT_S = 10.0
_DISK_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Kind, owner and permissions of one file."""

    kind: str
    """file, folder, pipe or other."""
    mode: int
    """Permission bits."""
    uid: int
    gid: int

    def lets(self, user: UserFacts, bits: int) -> bool:
        """Return whether that user has these rights; `bits` as in a mode: 4 read, 2 write, 1 enter or execute."""
        if user.uid == 0:
            return True
        if user.uid == self.uid:
            return (self.mode >> 6) & bits == bits
        if self.gid in user.groups:
            return (self.mode >> 3) & bits == bits
        return self.mode & bits == bits


@dataclass(frozen=True, slots=True)
class Space:
    """Free space of a disk."""

    free_bytes: int
    """Bytes that are free for the disk's owner."""
    has_inodes: bool = True
    """False when no file can be made, however many bytes are free."""
    answered: bool = True
    """False when the disk did not answer in time, as a network file system without its server; the rest is then not known."""


@dataclass(frozen=True, slots=True)
class UserFacts:
    """One user of this machine."""

    name: str
    uid: int
    groups: frozenset[int]


class Host(Protocol):
    """This machine."""

    def file(self, path: Path) -> FileFacts | None:
        """Return the facts of the file, links followed; None when it does not exist or cannot be seen."""

    def text(self, path: Path) -> str | None:
        """Return the text of a file; None when it does not exist or cannot be read."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none when it does not exist or cannot be seen."""

    def space(self, folder: Path) -> Space | None:
        """Return the free space of the folder's disk; None when it cannot be seen. It always returns within seconds."""

    def name(self) -> str:
        """Return the host name of this machine."""

    def user(self, name_or_uid: str | int) -> UserFacts | None:
        """Return a user by name or uid; None when there is no such user."""

    def program(self, name: str, folder: Path | None) -> Path | None:
        """Return the path of a program, in that folder or on PATH; None when there is none."""

    def lua_error(self, text: str) -> str | None:
        """Return why a Lua script cannot be parsed; None when it can be, or when this machine has no compiler of Lua."""

    def unit_active(self, unit: str) -> bool | None:
        """Return whether systemd runs that unit; None on a machine without systemd."""

    def unit_started_s(self, unit: str) -> float | None:
        """Return the start of an active unit, seconds since the Unix epoch; None when it is not active, or not known."""

    def changed_s(self, path: Path) -> float | None:
        """Return when a file, its owner or its mode last changed, seconds since the Unix epoch; None without a file."""

    def written_s(self, path: Path) -> float | None:
        """Return when the content of a file was last written, seconds since the Unix epoch; None without a file."""

    def controllers(self, uids: frozenset[int]) -> list[RunningController]:
        """Return the controllers of these users that run on this machine, without those whose settings cannot be read."""

    def resolved(self, path: Path) -> Path:
        """Return the path without symbolic links."""

    def not_compiled(self) -> list[str]:
        """Return the modules of inner loops that run interpreted."""


class RealHost:
    """The machine on which this process runs."""

    def file(self, path: Path) -> FileFacts | None:
        """See Host."""
        try:
            found = path.stat()
        except OSError:
            return None
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe"}
        return FileFacts(
            kind=kinds.get(stat.S_IFMT(found.st_mode), "other"),
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
        )

    def text(self, path: Path) -> str | None:
        """See Host."""
        try:
            return path.read_text(errors="replace") if path.is_file() else None
        except OSError:
            return None

    def names(self, folder: Path) -> list[str]:
        """See Host."""
        try:
            return [entry.name for entry in folder.iterdir()]
        except OSError:
            return []

    def space(self, folder: Path) -> Space | None:
        """See Host. A thread asks, because a file system that does not answer would block for ever."""
        found: list[Space | None] = []
        thread = threading.Thread(target=lambda: found.append(_space(folder)), name="space", daemon=True)
        thread.start()
        thread.join(_DISK_TIMEOUT_S)
        return found[0] if found else Space(0, answered=False)

    def name(self) -> str:
        """See Host."""
        return socket.gethostname()

    def user(self, name_or_uid: str | int) -> UserFacts | None:
        """See Host."""
        try:
            entry = pwd.getpwnam(name_or_uid) if isinstance(name_or_uid, str) else pwd.getpwuid(name_or_uid)
        except KeyError:
            return None
        return UserFacts(entry.pw_name, entry.pw_uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))

    def program(self, name: str, folder: Path | None) -> Path | None:
        """See Host."""
        found = shutil.which(name, path=str(folder) if folder else None)
        return Path(found) if found else None

    def lua_error(self, text: str) -> str | None:
        """See Host."""
        return lua_error(text)

    def unit_active(self, unit: str) -> bool | None:
        """See Host."""
        if not Path("/run/systemd/system").is_dir():
            return None
        try:
            done = subprocess.run(
                ["systemctl", "is-active", "--quiet", unit], timeout=_SYSTEMCTL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.returncode == 0

    def unit_started_s(self, unit: str) -> float | None:
        """See Host."""
        if not Path("/run/systemd/system").is_dir():
            return None
        command = ["systemctl", "show", "--value", "--property=ActiveEnterTimestampMonotonic", unit]
        try:
            done = subprocess.run(
                command, timeout=_SYSTEMCTL_TIMEOUT_S, check=False, capture_output=True, text=True, errors="replace"
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        since_boot_us = done.stdout.strip()
        if not since_boot_us.isdecimal() or int(since_boot_us) == 0 or not self.unit_active(unit):
            return None
        return time.time() - (time.monotonic() - int(since_boot_us) / 1e6)

    def changed_s(self, path: Path) -> float | None:
        """See Host."""
        try:
            return path.stat().st_ctime
        except OSError:
            return None

    def written_s(self, path: Path) -> float | None:
        """See Host."""
        try:
            return path.stat().st_mtime
        except OSError:
            return None

    def controllers(self, uids: frozenset[int]) -> list[RunningController]:
        """See Host."""
        return list(running_controllers(Path("/proc"), uids))

    def resolved(self, path: Path) -> Path:
        """See Host."""
        return Path(os.path.realpath(path))

    def not_compiled(self) -> list[str]:
        """See Host."""
        modules = ("simulator.kernel.loop", "policies.learned.sched2.state.features")
        return [name for name in modules if (spec := find_spec(name)) and (spec.origin or "").endswith(".py")]


def _space(folder: Path) -> Space | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return Space(found.f_bavail * found.f_frsize, has_inodes=not found.f_files or found.f_favail > 0)
