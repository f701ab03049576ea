"""The job of a slurmstepd, and of cgroups whose names do not have the job's number.

Since Slurm 26.05 a job's folder in cgroup v2 is named by its SLUID, such as slurmstepd.scope/sEKNKTV3WPV500
(CgroupJobIdPaths=yes in cgroup.conf brings back job_123). A SLUID does not contain the number of the job. But each step has a
slurmstepd in the folder step_.../slurm, to which only root can move a process, and that slurmstepd knows the number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from nodeagent.identity.procfs import Processes

SLUID = r"s[0-9A-HJKMNP-TV-Z]{13}"
"""Pattern of a SLUID: "s", then 13 digits of Crockford's base 32."""
MAX_JOB_ID = 2**32 - 1

_TITLE = re.compile(r"slurmstepd: \[([0-9]{1,10})\.([^\]]*)(\]?)")
_SPOOL_SOCKET = re.compile(r"[^/]+_([0-9]{1,10})\.([0-9]{1,10})(?:\.[0-9]{1,10})?")
_SPECIAL_STEPS = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern"}  # slurm.h
_MOST_KNOWN = 4096
_MOST_TRIED = 8
"""Maximum number of slurmstepds of a folder that are read; every one of them would do."""


def stepd_job(title: str, sockets: Iterable[str]) -> tuple[int, str] | None:
    """Return job and step of a slurmstepd, from its title or from its socket in slurmd's spool folder.

    The title has only as much room as the program's first arguments had: on Debian "slurmstepd: [1.bat", and for a longer job id
    not even the dot. Only a title with its closing bracket is complete.
    """
    found = _TITLE.match(title)
    if found and found[3]:
        return int(found[1]), found[2]
    for path in sockets:
        if spool := _SPOOL_SOCKET.fullmatch(path.rpartition("/")[2]):
            step = int(spool[2])
            return int(spool[1]), _SPECIAL_STEPS.get(step, str(step))
    return (int(found[1]), "") if found else None


def read_stepd(processes: Processes, pid: int) -> tuple[int, str] | None:
    """Return job and step if the process is a slurmstepd: started by root, and executing that program. Raises OSError.

    Its name alone proves nothing, nor does its effective uid: a user can give a link to a setuid program this name, and any title.
    """
    if not processes.program(pid).startswith("slurmstepd") or not processes.is_roots(pid):
        return None
    return stepd_job(processes.title(pid), processes.listening(pid))


class SluidJobs:
    """Numbers of the jobs whose folders are named by SLUID.

    Slurm issues no SLUID twice, so a number that was found once stays right. A folder that has no slurmstepd yet is read again.
    """

    def __init__(self, processes: Processes, root: Path = Path("/sys/fs/cgroup")) -> None:
        """`root` is /sys/fs/cgroup except in tests."""
        self._processes = processes
        self._root = root
        self._known: dict[str, int] = {}
        """Job of each path. Bound: `_MOST_KNOWN`."""

    def job_of(self, path: str) -> int | None:
        """Return the number of the job whose folder this is; None while it is not known."""
        found = self._known.get(path)
        if found is None:
            found = self._find(path)
            if found is not None:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[path] = found
        return found

    def _find(self, path: str) -> int | None:
        for pid in self._stepds(f"{self._root}{path}"):
            try:
                found = read_stepd(self._processes, pid)
            except OSError:  # the step has just ended
                continue
            if found is not None and 0 < found[0] <= MAX_JOB_ID:
                return found[0]
        return None

    def _stepds(self, folder: str) -> Iterator[int]:
        """Yield the processes in which the slurmstepds of the job's steps are found."""
        tried = 0
        for step in sorted(name for name in _names(folder) if name.startswith("step_")):
            for pid in _pids(f"{folder}/{step}/slurm/cgroup.procs"):
                if tried >= _MOST_TRIED:
                    return
                tried += 1
                yield pid


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - in the same way as cgroup.py
    except OSError:
        return []


def _pids(path: str) -> list[int]:
    try:
        return [int(word) for word in Path(path).read_bytes().split()]
    except (OSError, ValueError):
        return []
