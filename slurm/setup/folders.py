"""Folders for files that Slurm's users have to reach."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, all of them open to every user. Raises OSError.

    The umask of the operator does not count: mkdir() obeys it, and under 077 slurmctld and users could not reach their scripts.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o755)
            each.chmod(0o755)
