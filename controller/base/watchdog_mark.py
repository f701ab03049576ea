"""Time of the watchdog's last check: a file beside the lease, which each check of the watchdog renews.

It shows in the controller's own answers that the watchdog runs, which is needed only on the day on which the controller fails.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

MARK_FILE = "watchdog_check"
"""File in the runtime folder whose time of change is the begin of the last check."""
SILENT_AFTER_S = 300.0
"""Age of the last check above which the watchdog counts as silent, seconds: ten periods of its timer."""


def mark_check(folder: Path) -> None:
    """Record that a check begins. Without the folder, or with a full disk, nothing is recorded: a check goes on all the same.

    The file is replaced, because it may be another user's: after a check that root began, SlurmUser cannot change it.
    """
    temporary = folder / f".{MARK_FILE}.{os.getpid()}"
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        temporary.replace(folder / MARK_FILE)


def last_check_s(folder: Path) -> float:
    """Return the begin of the last check, seconds since the Unix epoch; 0 if none is recorded. Needs no right to read the file."""
    try:
        found = os.lstat(folder / MARK_FILE)
    except OSError:
        return 0.0
    return found.st_mtime if stat.S_ISREG(found.st_mode) else 0.0


def is_silent(checked_s: float, now_s: float, uptime_s: float) -> bool:
    """Return whether the watchdog should have checked by now. False in a controller's first minutes: its timer may begin later.

    As with the lease, a time in the future counts as little as one in the past.
    """
    return uptime_s > SILENT_AFTER_S and abs(now_s - checked_s) > SILENT_AFTER_S
