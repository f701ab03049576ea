"""What is written down about a cluster outside its own folder: enough to clean up after any crash.

Invariant: a name is in the record before the thing of that name is made, and a process is in the record before it does
anything. So whatever exists of a cluster can be found, and nothing else is ever touched.
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

from slurm.errors import AlreadyRunningError, MiniClusterError
from slurm.processes import ProcessRef, wait_until

RUNTIME_ROOT = Path("/run/headway-minicluster")
"""Locks and records of all clusters of this machine."""
_LOCK_PATIENCE_S = 0.2
"""`status` holds a lock for a moment, to see whether somebody else does."""


@dataclass(frozen=True, slots=True)
class Record:
    """One cluster, booting or up."""

    name: str
    directory: str
    made_directory: bool
    """False: the folder was there, empty, before; `down` leaves it, empty."""
    nodes: tuple[str, ...]
    gpus: int
    rate: str | None
    cgroup: Literal["v1", "v2", "none"]
    subnet: str
    slurm_user: str
    boot_id: str
    """Of the machine: after its reboot no process of this record exists."""
    booted_at_s: float
    """Seconds since the Unix epoch."""
    phase: Literal["booting", "up"] = "booting"
    detached: bool = False
    """True: it stays without an owner, until `down`. False: it ends with its owner."""
    holders: dict[str, ProcessRef] = field(default_factory=dict)
    """Host name to the process that holds its namespaces; ending it ends everything in them."""

    def holds_anything(self) -> bool:
        """Whether a host of it still runs."""
        return self.boot_id == boot_id() and any(holder.alive() for holder in self.holders.values())


def boot_id() -> str:
    """Changes with every boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class RecordStore:
    """Records and locks, as files in one folder. A record appears and changes atomically."""

    def __init__(self, root: Path = RUNTIME_ROOT) -> None:
        self._root = root

    def names(self) -> list[str]:
        """Names of all clusters with a record."""
        return sorted(path.stem for path in self._root.glob("*.json"))

    def read(self, name: str) -> Record | None:
        """The record; None if there is none."""
        path = self._record_path(name)
        try:
            values: dict[str, Any] = json.loads(path.read_text())
            holders = {host: ProcessRef(**ref) for host, ref in values.pop("holders").items()}
            return Record(**(values | {"nodes": tuple(values["nodes"]), "holders": holders}))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MiniClusterError(f"{path}: not a mini-cluster's record ({error}); move it away by hand") from error

    def write(self, record: Record) -> None:
        """Create or replace."""
        path = self._record_path(record.name)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record), indent=1))
        draft.replace(path)

    def remove(self, name: str) -> None:
        """Forget it."""
        self._record_path(name).with_suffix(".draft").unlink(missing_ok=True)
        self._record_path(name).unlink(missing_ok=True)

    def lock(self, name: str) -> NameLock:
        """Take the name. Raises AlreadyRunningError that says who has it."""
        self._root.mkdir(mode=0o755, exist_ok=True)
        return NameLock.take(self._root / f"{name}.lock", name)

    def owner(self, name: str) -> str | None:
        """Who holds the name's lock now; None if nobody does."""
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
        """Only one cluster at a time chooses a subnet."""
        self._root.mkdir(mode=0o755, exist_ok=True)
        with (self._root / ".subnets").open("w") as file:
            deadline = time.monotonic() + timeout_s
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise AlreadyRunningError(
                        f"{self._root}/.subnets: locked for {timeout_s:g} s by another boot; try again"
                    )
                time.sleep(0.02)
            yield

    def tidy(self) -> None:
        """Remove the folder when no cluster is left in it."""
        if any(self._root.glob("*.json")) or any(self._root.glob("*.lock")):
            return
        with contextlib.suppress(OSError):  # somebody has begun a boot meanwhile, or has removed it already
            (self._root / ".subnets").unlink(missing_ok=True)
            self._root.rmdir()

    def _record_path(self, name: str) -> Path:
        return self._root / f"{name}.json"


class NameLock:
    """The right to boot and take down one name; the kernel takes it back when its owner ends, however that happens."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @staticmethod
    def take(path: Path, name: str) -> NameLock:
        """Take it now, or raise AlreadyRunningError that says who has it."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not wait_until(lambda fd=descriptor: _lock_now(fd), _LOCK_PATIENCE_S):  # type: ignore[misc]
                os.close(descriptor)
                raise AlreadyRunningError(
                    f"mini-cluster {name}: held by {_owner_text(path)}; wait for it, end it, or choose another --name"
                )
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
            os.close(descriptor)  # its last owner removed the file between our open and our lock: take the new one
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} ({_command_line()})".encode())
        return NameLock(descriptor, path)

    def release(self, *, remove: bool) -> None:
        """Let others have the name; `remove` also takes the file away."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


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
        return path.read_text() or "a process that has just begun"
    return "a process that is just ending"
