"""The files of /proc that describe a process."""

from __future__ import annotations

import os
import re
import stat as modes
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from nodeagent.identity.bounded_read import BoundedReader
from nodeagent.identity.unix_names import names_of

_PROC = Path("/proc")
_MAX_ENVIRONMENT_BYTES = 1 << 20
_PIECE = 8192
_INODE = 6
"""Place of the inode in a line of net/unix; the name follows it, if the socket has one."""
_READINGS = 3
"""Readings of net/unix for one answer."""
_LARGEST = 2**64 - 1
_SLURM_VARIABLE = re.compile(rb"(?<=\0)(SLURM_[A-Z0-9_]{1,64})=([^\0]*)")
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class Processes(Protocol):
    """The kernel's data on processes. Every call raises OSError when the process is gone."""

    def cgroup(self, pid: int) -> str:
        """Return a line for each cgroup hierarchy."""
        ...

    def stat(self, pid: int) -> str:
        """Return the line of numbers of /proc/PID/stat."""
        ...

    def owner(self, pid: int) -> int:
        """Return the effective uid."""
        ...

    def user(self, pid: int) -> int:
        """Return the real uid: the user that started the process, also if it executes a setuid program."""
        ...

    def is_roots(self, pid: int) -> bool:
        """Return True if root started the process, and its program is not setuid: no user can have started it."""
        ...

    def program(self, pid: int) -> str:
        """Return the base name of the executed file, as the kernel resolved it. It is the name of a link that a user made, too."""
        ...

    def title(self, pid: int) -> str:
        """Return the first argument, as the process shows it now."""
        ...

    def listening(self, pid: int) -> tuple[str, ...]:
        """Return the paths of the named Unix sockets that the process holds open; a name that is in doubt is left out."""
        ...

    def environment(self, pid: int) -> dict[str, str]:
        """Return the SLURM_ variables of the environment with which the process was started."""
        ...


class ProcFiles:
    """Reads the data from /proc."""

    def __init__(
        self, root: Path = _PROC, socket_names: Callable[[Iterable[str]], dict[str, str]] | None = None
    ) -> None:
        """`socket_names` returns the names of Unix sockets by inode; see unix_names. Without it a `root` of tests has none."""
        self.root = root
        self._socket_names = (names_of if root == _PROC else _no_names) if socket_names is None else socket_names
        self._bounded = BoundedReader()

    def cgroup(self, pid: int) -> str:
        """Read /proc/PID/cgroup."""
        return self._read(pid, "cgroup").decode(errors="replace")

    def stat(self, pid: int) -> str:
        """Read /proc/PID/stat."""
        return self._read(pid, "stat").decode(errors="replace")

    def owner(self, pid: int) -> int:
        """Read the second number of the Uid line of /proc/PID/status."""
        return self._uids(pid)[1]

    def user(self, pid: int) -> int:
        """Read the first number of the Uid line of /proc/PID/status."""
        return self._uids(pid)[0]

    def is_roots(self, pid: int) -> bool:
        """Read the Uid line, and the mode of the executed file. slurmstepd acts as its user for moments: then only one number is
        not 0."""
        real, _effective, saved = self._uids(pid)
        return (real, saved) == (0, 0) and not Path(f"{self.root}/{pid}/exe").stat().st_mode & modes.S_ISUID

    def _uids(self, pid: int) -> tuple[int, int, int]:
        """Return the real, effective and saved uid: the owner of the folder is root for every process that may not be dumped."""
        text = self._read(pid, "status").decode(errors="replace")
        line = next((line for line in text.splitlines() if line.startswith("Uid:")), "")
        words = line.split()
        if len(words) < 4:
            raise ProcessLookupError(f"{self.root}/{pid}/status has no Uid line")
        return int(words[1]), int(words[2]), int(words[3])

    def program(self, pid: int) -> str:
        """Read the link /proc/PID/exe."""
        return Path(f"{self.root}/{pid}/exe").readlink().name.removesuffix(" (deleted)")

    def title(self, pid: int) -> str:
        """Read /proc/PID/cmdline up to the first zero byte."""
        return self._read(pid, "cmdline").split(b"\0", 1)[0].decode(errors="replace")

    def listening(self, pid: int) -> tuple[str, ...]:
        """Ask the kernel for the names of the sockets in /proc/PID/fd; where it knows none of them, read /proc/PID/net/unix.

        The kernel has no diagnostics where it was built so, and knows only sockets of the agent's own network namespace.
        """
        folder = self.root / str(pid) / "fd"
        inodes = {found[1] for entry in folder.iterdir() if (found := _SOCKET.fullmatch(_link(entry)))}
        names: dict[str, str] = {}
        with suppress(OSError):
            names = self._socket_names(inodes)
        if not names:
            names = self._listed_names(pid, inodes)
        return tuple(name for name in names.values() if name)

    def _listed_names(self, pid: int, inodes: set[str]) -> dict[str, str]:
        """Return the names of sockets from /proc/PID/net/unix, except those of which two lines disagree.

        A name of another socket may contain a line break, and then looks like the line of one of these. The kernel gives the table
        in pieces, and leaves out a socket if another one before it is closed between two of them: so the table is read several
        times. It always lacks sockets that are no Unix sockets.
        """
        found: dict[str, set[str]] = {}
        for _ in range(_READINGS):
            for line in self._read(pid, "net/unix").decode(errors="replace").split("\n")[1:]:
                words = line.split(maxsplit=_INODE + 1)
                if len(words) > _INODE and words[_INODE] in inodes:
                    found.setdefault(words[_INODE], set()).add("".join(words[_INODE + 1 :]))
        return {inode: next(iter(names)) for inode, names in found.items() if len(names) == 1}

    def environment(self, pid: int) -> dict[str, str]:
        """Read /proc/PID/environ, at most its first MiB.

        Raises TimeoutError when the process delays the read, and its subclass ReadDeferredError when the read was not tried.
        """
        found = self._bounded.call(self.user(pid), lambda: self._slurm_variables(pid))
        return {name.decode(): value.decode(errors="replace") for name, value in found}

    def _slurm_variables(self, pid: int) -> list[tuple[bytes, bytes]]:
        with Path(f"{self.root}/{pid}/environ").open("rb") as file:
            return _SLURM_VARIABLE.findall(b"\0" + file.read(_MAX_ENVIRONMENT_BYTES))

    def _read(self, pid: int, name: str) -> bytes:
        descriptor = os.open(f"{self.root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)  # half the time of a file object
        try:
            data = b""
            while more := os.read(descriptor, _PIECE):  # net/unix comes in shorter pieces than it was asked for
                data += more
            return data
        finally:
            os.close(descriptor)


def _no_names(_inodes: Iterable[str]) -> dict[str, str]:
    return {}


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""  # closed since the folder was listed


def start_ticks(stat: str) -> int:
    """Return the start time of a process, in clock ticks since boot (field 22).

    Raises ValueError when the text is not a line of /proc/PID/stat.
    """
    return _number(stat, 22)


def started_ns(ticks: int) -> int:
    """Convert clock ticks since boot to CLOCK_MONOTONIC, which, unlike the ticks, does not advance while the machine sleeps."""
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return max(ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - slept_ns, 0)


def parent(stat: str) -> int:
    """Return the pid of the parent (field 4). Raises ValueError."""
    return _number(stat, 4)


def name(stat: str) -> str:
    """Return the name of the process (field 2)."""
    return stat.partition("(")[2].rpartition(")")[0]


def masks(stat: str) -> tuple[int, int, int]:
    """Return the masks of signals 1 to 31 that the process blocks (first thread), ignores and catches (fields 32 to 34).

    The lowest bit is signal 1. Raises ValueError.
    """
    words = stat.rpartition(")")[2].split(maxsplit=32)
    if len(words) < 32:
        raise ValueError("not a line of /proc/PID/stat")
    return int(words[29]), int(words[30]), int(words[31])


def used(stat: str) -> tuple[int, int]:
    """Return the CPU time of the process and of children that it waited for, in clock ticks (fields 14 to 17), and its pages of
    memory (field 24). Raises ValueError, also for numbers beyond 64 bits, which no kernel writes."""
    words = _words(stat)
    ticks, pages = sum(map(int, words[11:15])), int(words[21])
    if max(ticks, pages) > _LARGEST:
        raise ValueError("not a line of /proc/PID/stat: a number beyond 64 bits")
    return ticks, pages


def _number(stat: str, field: int) -> int:
    return int(_words(stat)[field - 3])


def _words(stat: str) -> list[str]:
    """Split the line from field 3 on: the name, field 2, may contain blanks and brackets. Fields after the 24th stay together."""
    words = stat.rpartition(")")[2].split(maxsplit=22)
    if len(words) < 22:
        raise ValueError("not a line of /proc/PID/stat")
    return words
