"""What can go wrong with checkpoints. Only Refused ever reaches the user's script, and only from the call that sets them up."""

from __future__ import annotations


class CheckpointError(Exception):
    """The root of what the checkpoints of a job raise."""


class Refused(CheckpointError):  # noqa: N818 - what happened, as a word
    """Something that the user asked for, or a folder as it was found, which cannot be worked with. Says the mend."""


class Damaged(CheckpointError):  # noqa: N818 - as above
    """A checkpoint that is proven not to be what was written: a digest, a size or a manifest is wrong, or a file is missing.

    Only this lets a run go on from an older checkpoint, or from none. Whatever else goes wrong with reading is Refused: the
    checkpoint may be sound.
    """
