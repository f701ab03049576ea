"""Tells the node's Headway agent how a PyTorch job trains: how fast, how large, and where its steps spend their time.

The folder above is put on the PYTHONPATH of jobs. torch >= 2.5 calls `begin` at the end of its own import, as it does with
every entry point of the group `torch.backends`; for older versions see the folder before_2_5 beside this package.

Everything here runs inside somebody else's program. It never raises, never prints, waits for nobody, and imports nothing but
the standard library and what torch has loaded already. Where it cannot keep that it does nothing at all. Syntax: Python 3.8.
The exception is `checkpoint`, which scripts call on purpose.
"""

from __future__ import annotations

from typing import Any

HOOK_VERSION = "1"


def begin() -> None:
    """Starts telling. Called by torch, once it can be used; a second call does nothing."""
    try:
        from . import presence

        presence.begin()
    except Exception:
        # torch makes an import error of whatever an entry point raises: the job matters, this does not.
        pass


def checkpoint(url: Any = None, **options: Any) -> Any:
    """Restores what there is to restore, and gives the run, which saves when asked: see checkpoints.checkpoint for the options."""
    from . import checkpoints

    return checkpoints.checkpoint(url, **options)
