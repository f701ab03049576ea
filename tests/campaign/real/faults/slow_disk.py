"""A slow disk below the files of a real controller.

The controller is the installed program, unchanged. A library that the dynamic linker loads first (LD_PRELOAD) lets each of its
writes to one disk wait before the system call, in the thread that writes: SQLite and Python see a system call that takes long.
Reads, and writes to other disks, take no longer. Files that are mapped into memory (SQLite's index of its write-ahead log) are
written at once, as into the page cache. The kernel's own slow disk (dm-delay) needs a block device, which a container seldom has.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("slow_disk.c")
_COMPILERS = ("cc", "gcc", "clang")
_COMPILE_S = 60.0


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Invariant: writes of a process with `environment` to the disk wait only between `slow` and `usual`."""

    folder: Path
    """Folder on another disk, which the user of the process must own: library, rate, and waits so far."""
    disk: Path
    """A folder on the disk."""
    missing: str = ""
    """The reason why there can be no slow disk here; empty when there can."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the process whose writes shall wait; empty where there can be no slow disk."""
        if self.missing:
            return {}
        return {
            "LD_PRELOAD": str(self.folder / "slow_disk.so"),
            "STORY_DISK": str(self.disk),
            "STORY_DISK_RATE": str(self._rate),
            "STORY_DISK_WAITS": str(self._waits),
        }

    def slow(self, bytes_per_s: float) -> None:
        """Let the disk take so many bytes in a second, from the next write on."""
        new = self._rate.with_suffix(".new")
        new.write_text(f"{bytes_per_s}\n")
        new.replace(self._rate)

    def usual(self) -> None:
        """Let the disk be as fast as usual; a write that waits waits to its end."""
        self._rate.unlink(missing_ok=True)

    @property
    def waits_s(self) -> list[float]:
        """Seconds that each write has waited, since the library was built."""
        return [float(line) for line in self._waits.read_text().split()] if self._waits.exists() else []

    @property
    def _rate(self) -> Path:
        return self.folder / "bytes_per_s"

    @property
    def _waits(self) -> Path:
        return self.folder / "waits"


def build_slow_disk(folder: Path, disk: Path) -> SlowDisk:
    """Compile the library into a new folder. Where that is not possible, `missing` has the reason."""
    folder.mkdir(mode=0o755)
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        return SlowDisk(folder, disk, "no C compiler: install gcc and libc6-dev")
    argv = [compiler, "-shared", "-fPIC", "-O2", "-o", str(folder / "slow_disk.so"), str(_SOURCE), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode:
        return SlowDisk(folder, disk, f"{compiler} failed: {done.stderr.strip()[:500]}")
    return SlowDisk(folder, disk)
