"""Tells the node's Headway agent how a PyTorch job trains: how fast, how large, and where its steps spend their time.

The folder above is put on the PYTHONPATH of jobs, or a user installs the package. torch >= 2.5 calls `begin` at the end of its
own import, as it does with every entry point of the group `torch.backends`; for older versions see the folder before_2_5 beside
this package.

Everything here runs inside somebody else's program. It never raises, never prints, waits for nobody, and imports nothing but
the standard library and what torch has loaded already. Where it cannot keep that it does nothing at all. Syntax: Python 3.8.
The exception is `checkpoint`, which scripts call on purpose.
"""

from __future__ import annotations

import os
from typing import Any

__version__ = "0.1.0"
HOOK_VERSION = "1"


def begin() -> None:
    """Start telling the agent. Called by torch, once it can be used; a second call does nothing.

    Does nothing either where Headway has not asked for it: no socket is named, or the user does not want it. Then there is no
    thread and no hook, and `checkpoint` works all the same.
    """
    try:
        if _is_measured():
            from .hook import process

            process.begin()
    except Exception:
        # torch makes an import error of whatever an entry point raises: the job matters, this does not.
        pass


def _is_measured() -> bool:
    wanted = os.environ.get("HEADWAY_PROFILE", "").lower() not in ("off", "no", "0")
    return wanted and bool(os.environ.get("HEADWAY_JOB_SOCKET"))


def checkpoint(url: Any = None, **options: Any) -> Any:
    """Restores what there is to restore, and gives the run, which saves when asked: see checkpoints/run.py for the options."""
    from .checkpoints import run

    return run.checkpoint(url, **options)
