"""Records of clusters, outside their own folders, which are sufficient to clean up after any crash.

Invariant: a name is in the record before the object of that name is created, and a process is in the record before it does
anything. So everything of a cluster can be found, and nothing else is ever changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from policies.documents import parse_json, read_text, short
from slurm.errors import AlreadyRunningError, MiniClusterError
from slurm.processes import ProcessRef, wait_until
from slurm.setup.folders import make_folder

RUNTIME_ROOT = Path("/run/headway-minicluster")
"""Locks and records of all clusters of this machine."""
_LOCK_WAIT_S = 0.2
"""Seconds to wait for a lock: `status` holds it for a moment to test whether another process does."""
_FOLDER_WAIT_S = 10.0
"""Seconds for which a folder that is removed again and again is made again."""


@dataclass(frozen=True, slots=True)
class Record:
    """One cluster that is booting or up."""

    name: str
    directory: str
    made_directory: bool
    """False when the folder existed before, empty; `down` then leaves it empty."""
    nodes: tuple[str, ...]
    gpus: int
    rate: str | None
    cgroup: Literal["v1", "v2", "none"]
    subnet: str
    slurm_user: str
    boot_id: str
    """Boot of the machine: after a reboot no process of this record exists."""
    booted_at_s: float
    """Seconds since the Unix epoch."""
    phase: Literal["booting", "up"] = "booting"
    detached: bool = False
    """True when the cluster stays up without an owner, until `down`; False when it ends with its owner."""
    holders: dict[str, ProcessRef] = field(default_factory=dict)
    """Host name → process that holds its namespaces; when it ends, everything in them ends."""

    def has_running_host(self) -> bool:
        """Return whether a host of the cluster still runs."""
        return self.boot_id == boot_id() and any(holder.alive() for holder in self.holders.values())


def boot_id() -> str:
    """Return an id that changes with every boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class RecordStore:
    """Records and locks, as files in one folder. A record appears and changes atomically."""

    def __init__(self, root: Path = RUNTIME_ROOT) -> None:
        self._root = root

    def names(self) -> list[str]:
        """Return the names of all clusters that have a record, sorted."""
        try:
            return sorted(path.stem for path in self._root.iterdir() if path.suffix == ".json")
        except OSError:  # no cluster: the last owner removes the folder, perhaps at this moment
            return []

    def records(self) -> list[Record]:
        """Return the records of all clusters, sorted by name. Raises MiniClusterError for a file that is none."""
        found = (self.read(name) for name in self.names())
        return [record for record in found if record is not None]  # None: taken down a moment ago

    def read(self, name: str) -> Record | None:
        """Return a record; None if there is none."""
        path = self._record_path(name)
        try:
            values: dict[str, Any] = parse_json(read_text(path))
            holders = {host: ProcessRef(**ref) for host, ref in values.pop("holders").items()}
            return Record(**(values | {"nodes": tuple(values["nodes"]), "holders": holders}))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MiniClusterError(
                f"{path}: not the record of a mini-cluster ({short(error)}); move the file away"
            ) from error

    def write(self, record: Record) -> None:
        """Create or replace a record."""
        path = self._record_path(record.name)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record), indent=1))
        draft.chmod(0o644)  # every user may ask for the status, whatever the umask is
        draft.replace(path)

    def remove(self, name: str) -> None:
        """Remove a record."""
        self._record_path(name).with_suffix(".draft").unlink(missing_ok=True)
        self._record_path(name).unlink(missing_ok=True)

    def lock(self, name: str) -> NameLock:
        """Take the lock of a name. Raises AlreadyRunningError that names its owner."""
        return NameLock.take(self._root / f"{name}.lock", name)

    def owner(self, name: str) -> str | None:
        """Return the owner of the lock of a name, as text; None when the lock is free."""
        try:
            with (self._root / f"{name}.lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return _owner_text(self._root / f"{name}.lock")
        return None

    @contextlib.contextmanager
    def machine_lock(self, timeout_s: float = 60.0) -> Iterator[None]:
        """Hold the lock under which a cluster chooses its subnet; one on each machine."""
        make_folder(self._root)
        with (self._root / ".subnets").open("w") as file:
            deadline = time.monotonic() + timeout_s
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise AlreadyRunningError(
                        f"{self._root}/.subnets: another boot has held this lock for {timeout_s:g} s; try again"
                    )
                time.sleep(0.02)
            yield

    def tidy(self) -> None:
        """Remove the folder when no cluster is left in it."""
        with contextlib.suppress(OSError):  # another process has begun a boot, or has removed the folder already
            if any(path.suffix in (".json", ".lock") for path in self._root.iterdir()):
                return
            (self._root / ".subnets").unlink(missing_ok=True)
            self._root.rmdir()

    def _record_path(self, name: str) -> Path:
        return self._root / f"{name}.json"


class NameLock:
    """The right to boot and take down a cluster of one name; the kernel releases it when its owner ends for any reason.

    filelock does not serve: the file also names the owner, and `status` asks without taking the lock.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @staticmethod
    def take(path: Path, name: str) -> NameLock:
        """Take the lock; make its folder where it is missing. Raises AlreadyRunningError that names its owner, or OSError."""
        while True:
            descriptor = _opened(path)
            if not wait_until(lambda fd=descriptor: _lock_now(fd), _LOCK_WAIT_S):  # type: ignore[misc]
                os.close(descriptor)
                raise AlreadyRunningError(
                    f"mini-cluster {name}: in use by {_owner_text(path)}; wait for this process, end it, or choose another --name"
                )
            if _is_at(path, descriptor):
                break
            os.close(descriptor)  # the last owner removed the file between open and lock: take the new file
        os.fchmod(descriptor, 0o644)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} ({_command_line()})".encode())
        return NameLock(descriptor, path)

    def release(self, *, remove: bool) -> None:
        """Release the lock; `remove` also deletes the file."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _opened(path: Path) -> int:
    """Open a file, and create it and its folder where they are missing. Raises OSError."""
    deadline = time.monotonic() + _FOLDER_WAIT_S
    while True:
        try:
            make_folder(path.parent)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # the owner of the last cluster has removed the folder in between
            if time.monotonic() > deadline:
                raise


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file still has this path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _command_line() -> str:
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return b" ".join(words).decode(errors="replace").strip()[:200]


def _owner_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text() or "a process that has just started"
    return "a process that is just ending"
