"""A copy of this checkout as a clone would have it, with uncommitted changes: no compiled extension, no environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.releases.root import REPOSITORY


def copy_checkout(target: Path) -> None:
    """Put the files that git knows, or would add, into a folder, which is made anew."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source = REPOSITORY / name
        if source.is_symlink() or not source.is_file():  # a link leads to something of this machine
            continue
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)
