"""The lease: the controller's heartbeat, and all values that job_submit.lua needs.

It is one small file of `key=value` lines, replaced as a whole with every beat, so that a reader never sees half of one. Its readers
(job_submit.lua, the slurmctld hooks, the watchdog, `headway doctor`) share nothing else with the controller.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.base.partition_size import LARGEST, PartitionSize, kinds_text

_MAX_BYTES = 65536
_LONGEST_S = 86400.0
"""Limit above everything that the settings allow for `stale_after_s`: a larger value, or NaN, is damage."""
MOST_HOLDS = 1000
"""Most holds of users that may wait for the controller at one time."""
_PARTITION_NAME = re.compile(r"[^\s,=]+")


@dataclass(frozen=True, slots=True)
class Lease:
    """One heartbeat. Invariant: every number is finite and within its range, so that every lease becomes stale; partition names
    have no blanks, commas or equal signs."""

    time_s: int
    """Time of writing, seconds since the Unix epoch."""
    stale_after_s: float
    """Age beyond which readers no longer rely on the controller, seconds."""
    partitions: tuple[str, ...]
    """Partitions whose batch jobs with GPUs are held for Headway."""
    controller_uid: int
    """Uid whose changes of priority and begin time always pass, as root's do."""
    wake_room_bytes: int
    """Free room in the wake pipe when the lease was written (`wake_room`). job_submit.lua cannot write without blocking, and a
    full pipe would stop slurmctld, so it writes no more than a fourth of this until the next lease. 0: it does not write."""
    holds_room: int = MOST_HOLDS
    """Holds of users that job_submit.lua may write down until the next lease; it refuses more."""
    sizes: tuple[PartitionSize, ...] = ()
    """Sizes of the managed partitions, with the kinds of their nodes; without one of its partition, a job counts as one that fits.
    Only job_submit.lua reads them."""
    nice_keeps_holds: bool = False
    """True if a change of its nice value leaves a job on hold, as with PriorityType=priority/multifactor; with priority/basic Slurm
    computes a new priority, which ends the hold (seen on 22.05)."""

    def __post_init__(self) -> None:
        """Refuse values that a reader could not parse. Raises ValueError."""
        if not 0 < self.stale_after_s <= _LONGEST_S:
            raise ValueError(f"stale_after_s must be positive and at most {_LONGEST_S:g}, not {self.stale_after_s}")
        for number in (self.time_s, self.controller_uid, self.wake_room_bytes, self.holds_room):
            if not 0 <= number <= LARGEST:
                raise ValueError("a number is out of range")
        for name in self.partitions:
            if not _PARTITION_NAME.fullmatch(name):
                raise ValueError(f"not a partition name: {name!r}")


def wake_room(pipe: int) -> int:
    """Return the free bytes in a pipe; `pipe` is any open descriptor of it."""
    unread = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, unread)
    return max(0, fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - int.from_bytes(unread, sys.byteorder))


def is_stale(lease: Lease | None, now_s: float) -> bool:
    """Return whether readers must no longer rely on the controller. True without a lease.

    A lease from the future is as stale as one from the past: otherwise, after the clock has been set back by an hour,
    a dead controller's last lease would look fresh for an hour. job_submit.lua and the hooks use the same rule.
    """
    return lease is None or abs(now_s - lease.time_s) > lease.stale_after_s


def write_lease(path: Path, lease: Lease) -> None:
    """Replace the lease as a whole; mode 0644 whatever the umask. Raises OSError.

    A symbolic link in its place is replaced, not followed. Not synced to disk: after a crash of the machine it is stale anyway.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(_render(lease).encode())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_lease(path: Path) -> Lease | None:
    """Return the lease; None if it is missing, unreadable, no regular file, or no lease. Never blocks, never follows a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return parse_lease(os.read(descriptor, _MAX_BYTES).decode())
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)


def forget_lease_of_another_user(path: Path, uid: int) -> None:
    """Remove a lease that a controller of another user than this one has left; new jobs pass until the next lease.

    By that lease job_submit.lua would take the changes of this controller for those of an operator (see modify_by_root there).
    Where it cannot be removed, this controller cannot write its own either, and reports that.
    """
    lease = read_lease(path)
    if lease is not None and lease.controller_uid != uid:
        with suppress(OSError):
            path.unlink()


def parse_lease(text: str) -> Lease | None:
    """Return the lease that the text describes, or None. Unknown keys are ignored, so that versions can be mixed."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    try:
        return Lease(
            time_s=int(values["time"]),
            stale_after_s=float(values["stale_after"]),
            partitions=tuple(name for name in values["partitions"].split(",") if name),
            controller_uid=int(values["controller_uid"]),
            wake_room_bytes=int(values.get("wake_room_bytes", 0)),
            holds_room=int(values.get("holds_room", MOST_HOLDS)),
            nice_keeps_holds=values.get("nice_keeps_holds") == "1",
        )
    except (KeyError, ValueError):
        return None


def _render(lease: Lease) -> str:
    return "".join(
        f"{key}={value}\n"
        for key, value in (
            ("time", lease.time_s),
            ("stale_after", f"{lease.stale_after_s:g}"),
            ("partitions", ",".join(lease.partitions)),
            ("controller_uid", lease.controller_uid),
            ("wake_room_bytes", lease.wake_room_bytes),
            ("holds_room", lease.holds_room),
            ("nice_keeps_holds", int(lease.nice_keeps_holds)),
            ("sizes", ",".join(map(str, lease.sizes))),
            ("kinds", kinds_text(lease.sizes)),
        )
    )
