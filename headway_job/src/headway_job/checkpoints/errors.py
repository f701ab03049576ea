"""Errors of checkpoints. Only Refused and its subclass reach the script, and only from the call of `headway_job.checkpoint`."""

from __future__ import annotations


class CheckpointError(Exception):
    """Base class of the errors of this package."""


class Refused(CheckpointError):  # noqa: N818 - the name is public
    """An option, an object or a folder cannot be used as it is. The message says what to do."""


class UnsavableError(Refused):
    """A value in the state of an object cannot be saved. The message has its path in the state, and its type."""


class Damaged(CheckpointError):  # noqa: N818 - as above
    """A checkpoint is proven to differ from what was written: a digest, a size or a manifest is wrong, or a file is missing.

    Only this error lets a run use an older checkpoint, or begin at step 0. All other problems with reading are Refused, since the
    checkpoint may be intact.
    """
