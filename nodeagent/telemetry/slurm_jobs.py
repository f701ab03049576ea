"""The Slurm jobs of this node by kernel facts, including those whose processes never report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from nodeagent.identity.bounded_read import ReadDeferredError, ReadHangsError
from nodeagent.identity.cgroup import Folders, JobCgroups
from nodeagent.identity.peer import JobProcess
from nodeagent.identity.procfs import Processes, name
from nodeagent.telemetry import sysfs
from nodeagent.telemetry.signal_disposition import EXTERN, STEPD, usr1_effect
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.report import GpuProcess, GpuReading, Usr1Report

_MAX_GPUS = 1024
_MAX_DIGITS = 7
_MAX_PIDS = 4
"""Processes of a step whose environment is read: a user may have started thousands."""
_TRIES = 3
_READS = 64
"""Environments that are read in one turn; more wait for the next. A node starts fewer steps in one interval."""
_READS_A_JOB = 4
"""Environments of one job that are read in a turn before those of all other jobs have had their turn."""
_BATCH = "batch"
_ROOT = 0


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job that has processes on this node."""

    job_id: int
    uid: int
    restart: int
    folders: Folders
    """Empty = Slurm creates no cgroups."""
    pids: frozenset[int]
    gpus: tuple[int, ...] | None
    """Indices of the GPUs of this node that Slurm gave to the job; None = not known."""
    usr1: Usr1Report | None = None
    """None = not known."""
    uid_is_certain: bool = True
    """False = no process shows the environment that Slurm gave it, so the uid is that of some process in the job's cgroup."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """The user of a job."""

    uid: int
    certain: bool


@dataclass(frozen=True, slots=True)
class _Started:
    """The start conditions of a step's first process, from slurmstepd."""

    uid: int
    restart: int
    gpus: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class _Unread:
    """Failed attempts to read start conditions."""

    tries: int = 0
    delayed: bool = False
    """The last one was not answered in time: because of the user, or because all cores of the node were busy."""

    @property
    def given_up(self) -> bool:
        return self.tries >= _TRIES

    def after(self, delayed: bool) -> _Unread:
        return _Unread(min(self.tries + 1, _TRIES), delayed)


_Seen = dict[tuple[int, str, int], _Started | _Unread]
"""Start conditions by job, step and pid."""
_Steps = dict[str, list[int]]
"""Pids by step."""


@dataclass(slots=True)
class SlurmJobs:
    """Lists the jobs of this node.

    The start conditions of a process do not change and are read once, or a few times if that fails: for a moment a new process of
    a step is still slurmstepd's own. Where reading them takes too long, it is tried again in each turn, as far as the bounds of
    `BoundedReader` allow; after a few attempts the job is reported without them meanwhile. They state what Slurm gave the step,
    unless the user changed the environment before an exec, which affects only the rows of the user's own job.

    A job that starts steps without end delays no other job: a few reads are made for each job, first for those of which nothing is
    known and that have waited longest; what is left of the turn's reads goes to further steps.
    """

    cgroups: JobCgroups
    processes: Processes
    _started: _Seen = field(default_factory=dict)
    _owners: dict[int, _Owner] = field(default_factory=dict)
    """User of each job of the last reading. Bound: as many."""
    _reads: int = 0
    """Number of environments that may still be read in this turn."""
    _turn: int = 0
    _read_in: dict[int, int] = field(default_factory=dict)
    """Turn in which an environment of the job was last read. Bound: the jobs of the last turn."""
    _guard: RowGuard = field(default_factory=lambda: RowGuard("jobs of this node"))

    def read(self, connected: Iterable[JobProcess]) -> dict[int, SlurmJob]:
        """Return the jobs by id: from cgroups, and from the connected processes of jobs without one."""
        every: dict[int, _Steps] = {}
        users: dict[int, _Steps] = {}  # without Slurm's own processes, whose environment names no job
        folders = self.cgroups.jobs()
        for job_id, where in folders.items():
            for step in self.cgroups.steps(where):
                every.setdefault(job_id, {}).setdefault(step.step_id, []).extend(step.pids)
                started = [pid for pid in step.pids if pid not in step.daemons]
                users.setdefault(job_id, {}).setdefault(step.step_id, []).extend(started)
        for process in connected:
            if process.job_id not in folders:
                for steps in (every, users):
                    steps.setdefault(process.job_id, {}).setdefault(process.step_id, []).append(process.pid)
        self._started = seen = self._read_conditions(users)
        made = self._guard.each(
            every, lambda job_id: self._job(job_id, folders.get(job_id, ()), every[job_id], users[job_id], seen)
        )
        jobs = {job_id: job for job_id, job in made if job is not None}
        self._owners = {job_id: _Owner(job.uid, job.uid_is_certain) for job_id, job in jobs.items()}
        return jobs

    def _read_conditions(self, jobs: Mapping[int, _Steps]) -> _Seen:
        """Return the start conditions that are known after the reads of a turn."""
        self._reads = _READS
        self._turn += 1
        seen: _Seen = {}
        known = {job_id for (job_id, _step, _pid), found in self._started.items() if isinstance(found, _Started)}
        order = sorted(jobs, key=lambda job_id: (job_id in known, self._read_in.get(job_id, 0)))
        reads = {job_id: self._reads_of(job_id, jobs[job_id], seen) for job_id in order}
        self._read_in = {job_id: turn for job_id, turn in self._read_in.items() if job_id in jobs}
        for most in (_READS_A_JOB, None):
            for _ in self._guard.each(order, partial(_go_on, reads, most)):
                pass
        return seen

    def _reads_of(self, job_id: int, steps: _Steps, seen: _Seen) -> Iterator[None]:
        """Read the start conditions of a job's steps that are not known, and put them into `seen`; pause after each read."""
        for step, pids in steps.items():
            for pid in sorted(pids)[:_MAX_PIDS]:
                key, left = (job_id, step, pid), self._reads
                found = self._started.get(key, _Unread())
                if isinstance(found, _Unread) and (found.delayed or not found.given_up) and left > 0:
                    found = self._read_again(job_id, step, pid, found)
                seen[key] = found
                if self._reads < left:
                    self._read_in[job_id] = self._turn
                    yield
                if isinstance(found, _Started):
                    break

    def _job(
        self,
        job_id: int,
        folders: Folders,
        every: _Steps,
        steps: _Steps,
        seen: _Seen,
    ) -> SlurmJob | None:
        pids = frozenset(pid for own in every.values() for pid in own)
        started = [found for step, own in steps.items() if (found := self._first(job_id, step, own, seen))]
        owner = _Owner(started[0].uid, certain=True) if started else self._owner(job_id, steps, seen)
        if owner is None:
            return None
        gpus = [found.gpus for found in started if found.gpus is not None]
        return SlurmJob(
            job_id=job_id,
            uid=owner.uid,
            restart=max((found.restart for found in started), default=0),
            folders=folders,
            pids=pids,
            gpus=tuple(sorted(frozenset().union(*gpus))) if gpus else None,
            usr1=usr1_effect(self.processes, every) if folders else None,
            uid_is_certain=owner.certain,
        )

    def _owner(self, job_id: int, steps: Mapping[str, list[int]], seen: _Seen) -> _Owner | None:
        """Return the user of a job whose processes have all replaced their environment; None = not known, or not yet.

        A user that is certain from an earlier reading stays so: the job may have only its extern step left. In cgroup v2 the
        slurmstepd of each step is in the job's cgroup, and Slurm's processes of the extern step are root's: they say nothing about
        the job. Other processes of root are those of the job's user by sudo, or of a job of root: then all of the job are root's.
        """
        known = self._owners.get(job_id)
        if known is not None and known.certain:
            return known
        looked_at = [(step, pid) for step, pids in steps.items() for pid in sorted(pids)[:_MAX_PIDS]]
        given_up = [(step, pid) for step, pid in looked_at if _is_given_up(seen.get((job_id, step, pid)))]
        uids: dict[tuple[str, int], int] = {}
        for step, pid in given_up:
            with suppress(OSError):
                uids[step, pid] = self.processes.user(pid)
                if uids[step, pid] != _ROOT:
                    return _Owner(uids[step, pid], certain=False)
        if len(given_up) == len(looked_at) and any(step != EXTERN and not self._is_stepd(pid) for step, pid in uids):
            return _Owner(_ROOT, certain=False)
        return known

    def _is_stepd(self, pid: int) -> bool:
        """Return True for a slurmstepd, and for a process that has ended."""
        try:
            return name(self.processes.stat(pid)).startswith(STEPD)
        except OSError:
            return True

    def _first(self, job_id: int, step: str, pids: list[int], seen: _Seen) -> _Started | None:
        """Return the start conditions of the first process of a step that Slurm started: its environment names the job."""
        for pid in sorted(pids)[:_MAX_PIDS]:
            found = seen.get((job_id, step, pid))
            if isinstance(found, _Started):
                return found
        return None

    def _read_again(self, job_id: int, step: str, pid: int, before: _Unread) -> _Started | _Unread:
        """Return the start conditions of a process, or the attempts so far. Counts the reads of this turn."""
        try:
            found = self._read(job_id, step, pid)
        except ReadDeferredError:
            return before
        except ReadHangsError:
            return before.after(delayed=True)
        except TimeoutError:
            self._reads -= 1
            return before.after(delayed=True)
        except OSError:  # the process has ended, or may not be read
            found = None
        self._reads -= 1
        return found or before.after(delayed=False)

    def _read(self, job_id: int, step: str, pid: int) -> _Started | None:
        """Return the start conditions of a process; None where its environment is another one. Raises OSError."""
        environment = self.processes.environment(pid)
        user = self.processes.user(pid)  # the effective uid would be that of a setuid program
        named = environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_UID", str(user))
        if named != (str(job_id), str(user)):  # another user may act in the job, such as root by sudo
            return None
        restarts = environment.get("SLURM_RESTART_COUNT", "0")
        restart = int(restarts) if restarts.isdecimal() and len(restarts) < _MAX_DIGITS else 0
        return _Started(user, restart, step_gpus(step, environment))


def _go_on(reads: Mapping[int, Iterator[None]], most: int | None, job_id: int) -> None:
    """Make so many of the job's reads, or all."""
    for _ in islice(reads[job_id], most):
        pass


def _is_given_up(found: _Started | _Unread | None) -> bool:
    return isinstance(found, _Unread) and found.given_up


def step_gpus(step: str, environment: Mapping[str, str]) -> frozenset[int] | None:
    """Return the indices of the GPUs of this node that Slurm gave to a step; None = not known.

    A step started by srun inherits SLURM_JOB_GPUS from the batch script, which may run on another node: only the batch script's
    own variable is used.
    """
    gpus = environment.get("SLURM_JOB_GPUS") if step == _BATCH else environment.get("SLURM_STEP_GPUS")
    if gpus is None:
        return None
    try:
        return frozenset(sysfs.cpu_list(gpus, _MAX_GPUS))
    except ValueError:
        return None


def with_jobs(gpus: Iterable[GpuReading], jobs: Mapping[int, SlurmJob]) -> tuple[GpuReading, ...]:
    """Return the readings with the job of each process."""
    owner = {pid: job.job_id for job in jobs.values() for pid in job.pids}
    return tuple(_owned(gpu, owner) for gpu in gpus)


def _owned(gpu: GpuReading, owner: Mapping[int, int]) -> GpuReading:
    def named(processes: tuple[GpuProcess, ...] | None) -> tuple[GpuProcess, ...] | None:
        return processes and tuple(replace(process, job_id=owner.get(process.pid)) for process in processes)

    mig = tuple(replace(instance, processes=named(instance.processes)) for instance in gpu.mig)
    return replace(gpu, processes=named(gpu.processes), mig=mig)


def idle_gpus(job: SlurmJob, gpus: Iterable[GpuReading] | None) -> tuple[int, ...] | None:
    """Return the GPUs of the job on which none of its processes holds a context; None = not known.

    A GPU with a process of an unknown job does not count as idle: the process may belong to this job.
    """
    if gpus is None or job.gpus is None:
        return None
    users = {gpu.index: _users(gpu) for gpu in gpus}
    return tuple(
        index
        for index in job.gpus
        if (found := users.get(index)) is not None and job.job_id not in found and None not in found
    )


def _users(gpu: GpuReading) -> set[int | None] | None:
    lists = [gpu.processes, *(instance.processes for instance in gpu.mig)]
    known = [processes for processes in lists if processes is not None]
    return {process.job_id for processes in known for process in processes} if known else None
