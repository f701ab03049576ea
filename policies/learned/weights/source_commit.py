"""The commit of the checkout of Headway's source in which a file is, read from git's own files: no program is started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_PROJECT = 'name = "headway-scheduler"'
"""Line of pyproject.toml by which a checkout of Headway is recognized: an environment may be inside of somebody else's."""


def commit_of(file: Path) -> str:
    """Return the commit of the checkout with this file; empty if it is in no checkout of Headway. Its files may differ from it."""
    for folder in file.absolute().parents:
        if (folder / ".git").exists():
            with suppress(OSError, UnicodeDecodeError):
                if _PROJECT in (folder / "pyproject.toml").read_text(encoding="utf-8").splitlines():
                    return _head(_git_folder(folder / ".git"))
            return ""
    return ""


def _git_folder(git: Path) -> Path:
    """Return the folder of HEAD; in a further worktree, `.git` is a file that names it."""
    return git if git.is_dir() else git.parent / git.read_text(encoding="utf-8").strip().removeprefix("gitdir: ")


def _head(folder: Path) -> str:
    head = (folder / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref: "):
        return head
    name, common = head.removeprefix("ref: "), folder / "commondir"
    shared = folder / common.read_text(encoding="utf-8").strip() if common.is_file() else folder
    if (shared / name).is_file():
        return (shared / name).read_text(encoding="utf-8").strip()
    packed = (shared / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.partition(" ")[0] for line in packed if line.endswith(f" {name}")), "")
