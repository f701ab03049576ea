"""The cgroups of Slurm jobs (v1 and v2): the jobs of this node, their processes, and their use of CPU and memory.

A missing value (a controller that Slurm does not use, a job that has just ended) is None or empty, never an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.identity.peer import slurm_cgroup
from nodeagent.identity.pressure import job_pressure
from nodeagent.identity.procfs import Processes, used
from nodeagent.identity.stepd import SLUID, SluidJobs
from nodeagent.wire.report import JobPressure, JobUsage, UsageSource

Folders = tuple[tuple[str, str], ...]
"""Controller and the job's folder below its root; v2 has one, whose controller has no name."""

_Level = Callable[[str], bool]
_SLUID = re.compile(SLUID)
_V1_JOBS: tuple[_Level, ...] = (
    lambda name: name == "slurm" or name.startswith("slurm_"),
    lambda name: name.startswith("uid_"),
    lambda name: name.startswith("job_"),
)
_V2_JOBS: tuple[_Level, ...] = (
    lambda name: name.endswith(".slice"),
    lambda name: name.endswith("slurmstepd.scope"),
    lambda name: name.startswith("job_") or _SLUID.fullmatch(name) is not None,
)
_V2_INNER_JOBS = (_V2_JOBS[0], *_V2_JOBS)
_COUNT = re.compile(r"[0-9]{1,20}")
_UNIFIED = ""
_MAX_SUMMED = 2048


@dataclass(frozen=True, slots=True)
class StepProcesses:
    """The processes of one step of a job."""

    step_id: str
    """Empty = the processes are in the job's own folder."""
    pids: tuple[int, ...]
    daemons: tuple[int, ...] = ()
    """Those of `pids` that are Slurm's own, as far as a folder shows it (v2)."""


class JobCgroups:
    """Reads below a folder that is /sys/fs/cgroup except in tests."""

    def __init__(self, processes: Processes, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._processes = processes
        self._root = root
        self._sluids = SluidJobs(processes, root)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def jobs(self) -> dict[int, Folders]:
        """Return every Slurm job that has a cgroup on this node, by id."""
        found: dict[int, set[tuple[str, str]]] = {}
        # One hierarchy may have several names: cpuacct is a link to cpu,cpuacct.
        for controller, path in self._job_folders():
            line = f"{0 if controller == _UNIFIED else 1}:{controller}:{path}"
            named = slurm_cgroup(line, self._sluids.job_of)
            if named is not None:
                found.setdefault(named.job_id, set()).update(named.folders)
        return {job_id: tuple(sorted(folders)) for job_id, folders in found.items()}

    def steps(self, folders: Folders) -> tuple[StepProcesses, ...]:
        """Return the processes by step, from the first of the job's folders that exists and contains any."""
        for controller, path in folders:
            folder = str(self._folder(controller, path))
            names = sorted(name for name in _entries(folder) if name.startswith("step_"))
            steps = [_step(f"{folder}/{name}", name.removeprefix("step_"), controller) for name in names]
            found = [step for step in (StepProcesses("", _pids(folder)), *steps) if step.pids]
            if found:
                return tuple(found)
        return ()

    def usage(self, folders: Folders, pids: Collection[int]) -> JobUsage:
        """Return what the kernel counted for the job; for what it did not count, the sum over the given processes."""
        cpu_s, memory = self._cpu_s(folders), self._memory_bytes(folders)
        if cpu_s is not None and memory is not None:
            return JobUsage(cpu_s, memory, "cgroup")
        sum_cpu_s, sum_memory = self._sum(pids)
        source: UsageSource = "cgroup" if cpu_s is not None else "processes"
        return JobUsage(sum_cpu_s if cpu_s is None else cpu_s, sum_memory if memory is None else memory, source)

    def pressure(self, folders: Folders) -> JobPressure | None:
        """Return the waiting times of the job; None = the kernel counts none for it."""
        return job_pressure(self._folder(controller, path) for controller, path in folders)

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
        """Return the memory without inactive pages of files: the kernel can reclaim these."""
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

    def _sum(self, pids: Collection[int]) -> tuple[float | None, int | None]:
        """Add up CPU time and memory; None for a job of very many processes: reading them would delay all other jobs."""
        if len(pids) > _MAX_SUMMED:
            return None, None
        ticks, pages, found = 0, 0, False
        for pid in pids:
            with suppress(OSError, ValueError):  # ended meanwhile
                more_ticks, more_pages = used(self._processes.stat(pid))
                ticks, pages, found = ticks + more_ticks, pages + more_pages, True
        return (ticks / self._ticks_per_s, pages * self._page_bytes) if found else (None, None)

    def _job_folders(self) -> Iterator[tuple[str, str]]:
        """Yield controller and path of every folder whose name is that of a job."""
        if (self._root / "cgroup.controllers").exists():
            for path in _match(str(self._root), _V2_JOBS) + _match(str(self._root), _V2_INNER_JOBS):
                yield _UNIFIED, path
            return
        for controller in _entries(str(self._root)):
            for path in _match(f"{self._root}/{controller}", _V1_JOBS):
                yield controller, path

    def _folder(self, controller: str, path: str) -> Path:
        below = path.lstrip("/")
        if controller == _UNIFIED:
            return self._root / below
        return self._root / controller.removeprefix("name=") / below


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - this module runs all the time, and Path costs more than the read
    except OSError:
        return []


def _match(folder: str, levels: Sequence[_Level], below: str = "") -> list[str]:
    """Return the paths below a folder whose parts match. It runs all the time, and takes a fifth of the time of glob."""
    if not levels:
        return [below]
    names = (name for name in _entries(folder + below) if levels[0](name))
    return [path for name in names for path in _match(folder, levels[1:], f"{below}/{name}")]


def _pids(folder: str) -> tuple[int, ...]:
    try:
        with open(f"{folder}/cgroup.procs", "rb") as file:  # noqa: PTH123 - as above
            return tuple(map(int, file.read().split()))
    except (OSError, ValueError):
        return ()


def _pids_below(folder: str) -> tuple[int, ...]:
    return tuple(pid for inner, _folders, _files in os.walk(folder) for pid in _pids(inner))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return None
    return int(text) if _COUNT.fullmatch(text) else None


def _step(folder: str, step_id: str, controller: str) -> StepProcesses:
    """Return the processes of a step. On v2 its slurmstepd is in a folder of its own, to which no user can move a process."""
    daemons = _pids(f"{folder}/slurm") if controller == _UNIFIED else ()
    return StepProcesses(step_id, _pids_below(folder), daemons)


def _keyed(path: Path) -> dict[str, int]:
    """Parse lines of the form "key number"."""
    try:
        words = (line.split() for line in path.read_text(errors="replace").splitlines())
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and _COUNT.fullmatch(pair[1])}
    except OSError:
        return {}
