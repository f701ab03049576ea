"""The cgroups that Slurm makes for its jobs: which there are, who is in them, and what they use. v1 and v2.

Whatever is not there (a controller that Slurm does not use, a job that has just ended) is None or empty, never an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.identity import slurm_cgroup
from nodeagent.procfs import Processes, cpu_ticks, resident_pages
from nodeagent.report import JobUsage, UsageSource

Folders = tuple[tuple[str, str], ...]
"""Controller and the job's folder below its root; v2 has one, whose controller has no name."""

_V1_JOBS = ("*/slurm/uid_*/job_*", "*/slurm_*/uid_*/job_*")
_V2_JOBS = ("*.slice/*slurmstepd.scope/job_*", "*.slice/*.slice/*slurmstepd.scope/job_*")
_UNIFIED = ""
_MAX_SUMMED = 2048


@dataclass(frozen=True, slots=True)
class StepProcesses:
    """The processes of one step of a job."""

    step_id: str
    """Empty = in the job's own folder."""
    pids: tuple[int, ...]


class JobCgroups:
    """Reads below a folder that is /sys/fs/cgroup except in tests."""

    def __init__(self, processes: Processes, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._processes = processes
        self._root = root
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def jobs(self) -> dict[int, Folders]:
        """Every Slurm job that has a cgroup on this node, by id."""
        found: dict[int, set[tuple[str, str]]] = {}
        for folder in self._job_folders():  # one hierarchy may have several names: cpuacct is a link to cpu,cpuacct
            controller, path = self._split(folder)
            named = slurm_cgroup(f"{0 if controller == _UNIFIED else 1}:{controller}:{path}")
            if named is not None:
                found.setdefault(named.job_id, set()).update(named.folders)
        return {job_id: tuple(sorted(folders)) for job_id, folders in found.items()}

    def steps(self, folders: Folders) -> tuple[StepProcesses, ...]:
        """Processes by step, from the first of the job's folders that is still there and holds any."""
        for controller, path in folders:
            folder = self._folder(controller, path)
            own = _pids(folder)
            steps = [StepProcesses(step.name.removeprefix("step_"), _pids_below(step)) for step in _children(folder)]
            found = [step for step in (StepProcesses("", own), *steps) if step.pids]
            if found:
                return tuple(found)
        return ()

    def usage(self, folders: Folders, pids: Iterable[int] = ()) -> JobUsage:
        """What the kernel counted for the job; where it did not, the sum over its processes (those given, without cgroups)."""
        cpu_s, memory = self._cpu_s(folders), self._memory_bytes(folders)
        if cpu_s is not None and memory is not None:
            return JobUsage(cpu_s, memory, "cgroup")
        there = {pid for step in self.steps(folders) for pid in step.pids} or set(pids)
        sum_cpu_s, sum_memory = self._sum(there)
        source: UsageSource = "cgroup" if cpu_s is not None else "processes"
        return JobUsage(sum_cpu_s if cpu_s is None else cpu_s, sum_memory if memory is None else memory, source)

    def _cpu_s(self, folders: Folders) -> float | None:
        for controller, path in folders:
            folder = self._folder(controller, path)
            if controller == _UNIFIED:
                usec = _keyed(folder / "cpu.stat").get("usage_usec")
                if usec is not None:
                    return usec / 1e6
            elif controller == "cpuacct" and (nsec := _number(folder / "cpuacct.usage")) is not None:
                return nsec / 1e9
        return None

    def _memory_bytes(self, folders: Folders) -> int | None:
        """Without pages of files that nobody uses any more: the kernel takes these back when it wants."""
        for controller, path in folders:
            folder = self._folder(controller, path)
            if controller == _UNIFIED:
                used, inactive = _number(folder / "memory.current"), "inactive_file"
            elif controller == "memory":
                used, inactive = _number(folder / "memory.usage_in_bytes"), "total_inactive_file"
            else:
                continue
            if used is not None:
                return max(0, used - _keyed(folder / "memory.stat").get(inactive, 0))
        return None

    def _sum(self, pids: set[int]) -> tuple[float | None, int | None]:
        """Nothing for a job of very many processes: reading them would hold everybody else up."""
        if len(pids) > _MAX_SUMMED:
            return None, None
        ticks, pages, found = 0, 0, False
        for pid in pids:
            with suppress(OSError, ValueError):  # ended meanwhile
                stat = self._processes.stat(pid)
                ticks, pages, found = ticks + cpu_ticks(stat), pages + resident_pages(stat), True
        return (ticks / self._ticks_per_s, pages * self._page_bytes) if found else (None, None)

    def _job_folders(self) -> Iterable[Path]:
        patterns = _V2_JOBS if (self._root / "cgroup.controllers").exists() else _V1_JOBS
        return (folder for pattern in patterns for folder in self._root.glob(pattern))

    def _split(self, folder: Path) -> tuple[str, str]:
        relative = folder.relative_to(self._root)
        if (self._root / "cgroup.controllers").exists():
            return _UNIFIED, f"/{relative}"
        return relative.parts[0], f"/{Path(*relative.parts[1:])}"

    def _folder(self, controller: str, path: str) -> Path:
        below = path.lstrip("/")
        if controller == _UNIFIED:
            return self._root / below
        return self._root / controller.removeprefix("name=") / below


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.name.startswith("step_"))
    except OSError:
        return []


def _pids(folder: Path) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in (folder / "cgroup.procs").read_text().split())
    except (OSError, ValueError):
        return ()


def _pids_below(folder: Path) -> tuple[int, ...]:
    return tuple(pid for inner, _folders, _files in os.walk(folder) for pid in _pids(Path(inner)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _keyed(path: Path) -> dict[str, int]:
    """Lines "key number"."""
    try:
        words = (line.split() for line in path.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdecimal()}
    except OSError:
        return {}
