"""Identification of the process at the other end of a connection, by kernel facts only, never by what the process claims.

Invariant: a process is identified only if it was alive, under the same pid, after all facts about it had been read. While a pidfd
refers to a live process, its pid cannot be reused, so the facts are about this process.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodeagent.errors import IdentityError
from nodeagent.identity.procfs import Processes, parent, start_ticks
from nodeagent.identity.stepd import MAX_JOB_ID, SLUID, SluidJobs, read_stepd

IdentityMode = Literal["automatic", "cgroup", "ancestry"]

_SO_PEERPIDFD = 77  # Linux 6.5, include/uapi/asm-generic/socket.h; Python has no name for it yet
_V1 = re.compile(r"(/slurm(?:_[^/]+)?/uid_([0-9]{1,10})/job_([0-9]{1,10}))(?:/step_([^/]+))?(?:/.*)?")
# Above the scope only slices are allowed: root creates them, while users can create cgroups only below a user@U.service.
_V2 = re.compile(
    r"((?!/user\.slice/)(?:/[^/]+\.slice)+/(?:[^/]+_)?slurmstepd\.scope/(?:job_([0-9]{1,10})|"
    + SLUID
    + r"))(?:/step_([^/]+))?(?:/.*)?"
)
_MAX_ANCESTORS = 64
_UNIFIED = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """SO_PEERCRED: the process that called connect()."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class SlurmCgroup:
    """The job to which a cgroup path belongs."""

    job_id: int
    step_id: str
    """batch, extern, interactive or a number; empty = above every step."""
    uid: int | None
    """Owner of the job, if the path names it (v1)."""
    folders: tuple[tuple[str, str], ...]
    """Controller and the job's own folder below its root; v2 has one, whose controller has no name."""


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process that belongs to a Slurm job of this node."""

    pid: int
    uid: int
    start_ticks: int
    """Start time; with the pid it identifies the process for as long as the node is up."""
    job_id: int
    step_id: str
    source: Literal["cgroup", "ancestry"]
    folders: tuple[tuple[str, str], ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that connected, as of connect()."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return Peer(*struct.unpack("3i", found))


def open_pidfd(connection: socket.socket, peer: Peer) -> int:
    """Return a pidfd of the process that connected; the caller closes it. Raises IdentityError when it is gone.

    Since Linux 6.5 the kernel returns the connecting process itself; before, the pid may have been reused since connect().
    """
    with suppress(OSError):  # this kernel does not have it, or the process is gone: the next call shows which
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    try:
        return os.pidfd_open(peer.pid)
    except OSError as error:
        raise IdentityError(f"process {peer.pid} has ended: {error.strerror}") from None


def is_alive(pidfd: int) -> bool:
    """Return True while the process runs: its pidfd becomes readable when it ends."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


class Identifier:
    """Finds the Slurm job of a process."""

    def __init__(
        self, processes: Processes, mode: IdentityMode = "automatic", cgroup_root: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._processes = processes
        self._mode = mode
        self._cgroup_root = cgroup_root
        self._sluids = SluidJobs(processes, cgroup_root)

    def identify(self, peer: Peer, pidfd: int) -> JobProcess:
        """Return the job of the process to which the pidfd refers. Raises IdentityError, with the reason."""
        if peer.pid <= 0:
            raise IdentityError("the process is in a pid namespace that is not below the agent's")
        try:
            started = start_ticks(self._processes.stat(peer.pid))
            process = self._find(peer, started)
            unchanged = start_ticks(self._processes.stat(peer.pid)) == started
        except (OSError, ValueError) as error:
            raise IdentityError(f"process {peer.pid} cannot be read: {error}") from None
        if not unchanged or not is_alive(pidfd):
            raise IdentityError(f"process {peer.pid} ended while it was identified")
        return process

    def _find(self, peer: Peer, started: int) -> JobProcess:
        if self._mode != "ancestry":
            found = slurm_cgroup(self._processes.cgroup(peer.pid), self._sluids.job_of)
            if found is not None:
                return _by_cgroup(peer, started, found, self._processes.owner(peer.pid))
            if self._mode == "cgroup" or has_job_cgroups(self._cgroup_root):
                raise IdentityError(f"process {peer.pid} of uid {peer.uid} is not in the cgroup of a Slurm job")
        job_id, step_id = self._by_ancestry(peer)
        return JobProcess(peer.pid, peer.uid, started, job_id, step_id, "ancestry")

    def _by_ancestry(self, peer: Peer) -> tuple[int, str]:
        """Return job and step of the outermost slurmstepd above the process: a job can start none above its own."""
        found = None
        child_stat = self._processes.stat(peer.pid)
        for _ in range(_MAX_ANCESTORS):
            above = parent(child_stat)
            if above <= 1:
                break
            above_stat = self._processes.stat(above)
            if start_ticks(above_stat) > start_ticks(child_stat):
                raise IdentityError(f"process {above}, above {peer.pid}, started later: the pid was reused")
            found = read_stepd(self._processes, above) or found
            child_stat = above_stat
        if found is None:
            raise IdentityError(f"process {peer.pid} of uid {peer.uid} has no slurmstepd above it")
        return found


JobOf = Callable[[str], int | None]
"""Returns the number of the job whose folder is named by its SLUID; None = not known."""


def slurm_cgroup(text: str, job_of: JobOf = lambda _path: None) -> SlurmCgroup | None:
    """Return the Slurm job that /proc/PID/cgroup names, or None. Raises IdentityError when hierarchies name different jobs.

    `job_of` is called for folders that are named by SLUID, as since Slurm 26.05.
    """
    found = [named for line in text.splitlines() if (named := _line(line, job_of)) is not None]
    if not found:
        return None
    if len({named.job_id for named in found}) > 1:
        raise IdentityError(f"cgroups of different jobs: {sorted({named.job_id for named in found})}")
    return SlurmCgroup(
        job_id=found[0].job_id,
        step_id=max((named.step_id for named in found), key=len),
        uid=next((named.uid for named in found if named.uid is not None), None),
        folders=tuple(folder for named in found for folder in named.folders),
    )


def _line(line: str, job_of: JobOf) -> SlurmCgroup | None:
    number, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    path = path.removesuffix(" (deleted)")
    if number == "0" and controllers == _UNIFIED:
        found = _V2.fullmatch(path)
        uid, job_id, step_id = (None, found[2] or job_of(found[1]), found[3]) if found else (None, "", "")
    else:
        found = _V1.fullmatch(path)
        uid, job_id, step_id = (int(found[2]), found[3], found[4]) if found else (None, "", "")
    if found is None or job_id is None or not 0 < int(job_id) <= MAX_JOB_ID:
        return None
    return SlurmCgroup(int(job_id), step_id or "", uid, tuple((name, found[1]) for name in controllers.split(",")))


def _by_cgroup(peer: Peer, started: int, found: SlurmCgroup, owner: int) -> JobProcess:
    """Return the job of a process. Raises IdentityError if it acts as another uid, or the path (v1 only) names another owner."""
    if owner != peer.uid:
        raise IdentityError(f"process {peer.pid} connected as uid {peer.uid}, and acts as {owner}")
    if found.uid is not None and found.uid != peer.uid:
        raise IdentityError(f"process {peer.pid} of uid {peer.uid} is in job {found.job_id} of uid {found.uid}")
    return JobProcess(peer.pid, peer.uid, started, found.job_id, found.step_id, "cgroup", found.folders)


def has_job_cgroups(root: Path) -> bool:
    """Return True if Slurm keeps its jobs in cgroups on this node, or has done so since the boot."""
    v1 = (*root.glob("*/slurm"), *root.glob("*/slurm_*"))
    return bool(v1) or any(root.glob("*.slice/*slurmstepd.scope"))
