"""Measures how a PyTorch job trains, for the node's Headway agent; and saves and restores checkpoints for scripts that call it.

The folder above is on the PYTHONPATH of jobs, or a user installs this package. torch >= 2.5 calls `begin` at the end of its own
import, as it does with every entry point of the group `torch.backends`. For older versions, see the folder before_2_5 beside this
package.

This package runs inside a user's program. Except for `checkpoint`, which scripts call themselves, it never raises, never prints,
never waits, and imports only the standard library and what torch has already loaded. Where it cannot do so, it does nothing.
Syntax: Python 3.8.
"""

from __future__ import annotations

import os
from typing import Any

from . import started  # noqa: F401 - it notes the folder in which the program was started, before the program changes it

__version__ = "0.1.0"


def begin() -> None:
    """Start measuring this process. torch calls it once it is ready for use; a second call does nothing.

    Where no agent is configured, or the user does not want to be measured, no thread is started and no hook is installed.
    `checkpoint` works nevertheless.
    """
    try:
        if _is_measured():
            from .hook import process

            process.begin()
    except Exception:
        # torch would turn any exception of an entry point into an ImportError. The job must run without this package, too.
        pass


def _is_measured() -> bool:
    wanted = os.environ.get("HEADWAY_PROFILE", "").lower() not in ("off", "no", "0")
    return wanted and bool(os.environ.get("HEADWAY_JOB_SOCKET"))


def checkpoint(url: Any = None, **options: Any) -> Any:
    """Restore the newest checkpoint, if there is one, and return the run, which saves on request (options: checkpoints/run.py)."""
    from .checkpoints import run

    return run.checkpoint(url, **options)


def __getattr__(name: str) -> Any:
    """Give the errors of `checkpoint` to scripts that catch them; loaded at first use, as jobs that only train need none of it."""
    if name in ("CheckpointError", "Refused", "mishaps"):
        from .checkpoints import errors

        return (
            errors if name == "mishaps" else getattr(errors, name)
        )  # as it was documented earlier: headway_job.mishaps.Refused
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
