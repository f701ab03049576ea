"""This Python, made visible to users who may not enter its folder."""

from __future__ import annotations

import os
from pathlib import Path

from slurm.demo.run.jobpython import closed_folders, python_folders


def test_folders_that_every_user_can_reach_need_nothing(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents[:-1]):
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o001)

    assert closed_folders([tmp_path / "python"]) == {}


def test_folders_are_shown_below_the_topmost_closed_ancestor(tmp_path: Path) -> None:
    for parent in tmp_path.parents[:-1]:
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(parent.stat().st_mode | 0o001)
    home = tmp_path / "home"
    (home / "inner").mkdir(parents=True)
    home.chmod(0o700)
    (home / "inner").chmod(0o700)
    tmp_path.chmod(0o755)
    venv, python = home / "venv", home / "inner" / "python"

    assert closed_folders([venv, python, venv / "lib"]) == {home: (venv, python)}


def test_this_python_and_its_environment_are_among_the_folders() -> None:
    import sys

    folders = python_folders()

    assert Path(sys.prefix) in folders
    assert Path(sys.base_prefix) in folders
