"""The files of /proc that describe a process."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Protocol

from nodeagent.identity.bounded_read import BoundedReader

_MAX_ENVIRONMENT_BYTES = 1 << 20
_PIECE = 8192
_INODE = 6
"""Place of the inode in a line of net/unix; the name follows it, if the socket has one."""
_READINGS = 3
"""Most readings of net/unix for one answer."""
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

    def program(self, pid: int) -> str:
        """Return the base name of the executed file, as the kernel resolved it."""
        ...

    def title(self, pid: int) -> str:
        """Return the first argument, as the process shows it now."""
        ...

    def listening(self, pid: int) -> tuple[str, ...]:
        """Return the paths of the named Unix sockets that the process holds open."""
        ...

    def environment(self, pid: int) -> dict[str, str]:
        """Return the SLURM_ variables of the environment with which the process was started."""
        ...


class ProcFiles:
    """Reads the data from /proc."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._bounded = BoundedReader()

    def cgroup(self, pid: int) -> str:
        """Read /proc/PID/cgroup."""
        return self._read(pid, "cgroup").decode(errors="replace")

    def stat(self, pid: int) -> str:
        """Read /proc/PID/stat."""
        return self._read(pid, "stat").decode(errors="replace")

    def owner(self, pid: int) -> int:
        """Read the Uid line of /proc/PID/status: the owner of the folder is root for every process that may not be dumped."""
        text = self._read(pid, "status").decode(errors="replace")
        line = next((line for line in text.splitlines() if line.startswith("Uid:")), "")
        words = line.split()
        if len(words) < 3:
            raise ProcessLookupError(f"{self.root}/{pid}/status has no Uid line")
        return int(words[2])

    def program(self, pid: int) -> str:
        """Read the link /proc/PID/exe."""
        return Path(f"{self.root}/{pid}/exe").readlink().name.removesuffix(" (deleted)")

    def title(self, pid: int) -> str:
        """Read /proc/PID/cmdline up to the first zero byte."""
        return self._read(pid, "cmdline").split(b"\0", 1)[0].decode(errors="replace")

    def listening(self, pid: int) -> tuple[str, ...]:
        """Join /proc/PID/fd with /proc/PID/net/unix.

        The kernel gives the table in pieces, and leaves out a socket if another one before it is closed between two of them. So the
        table is read again while it lacks a socket of the process. It always lacks sockets that are no Unix sockets.
        """
        folder = self.root / str(pid) / "fd"
        inodes = {found[1] for entry in folder.iterdir() if (found := _SOCKET.fullmatch(_link(entry)))}
        names: dict[str, str] = {}
        for _ in range(_READINGS):
            lines = self._read(pid, "net/unix").decode(errors="replace").splitlines()[1:]
            fields = [words for line in lines if len(words := line.split(maxsplit=7)) > _INODE]
            names |= {words[_INODE]: "".join(words[_INODE + 1 :]) for words in fields}
            if inodes <= names.keys():
                break
        return tuple(name for inode, name in names.items() if inode in inodes and name)

    def environment(self, pid: int) -> dict[str, str]:
        """Read /proc/PID/environ, at most its first MiB.

        Raises TimeoutError when the process delays the read, and its subclass ReadDeferredError when the read was not tried.
        """
        found = self._bounded.call(self.owner(pid), lambda: self._slurm_variables(pid))
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
