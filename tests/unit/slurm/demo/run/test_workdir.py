"""The folder of the demonstration, its lock and its guard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.demo.errors import DemoError, DemoRunningError
from slurm.demo.run.workdir import DemoFolder


def test_two_refuse_each_other_and_the_folder_is_gone_after(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with DemoFolder(folder, cluster=""):
        (folder / "something").write_text("left")
        with pytest.raises(DemoRunningError, match="another"), DemoFolder(folder, cluster=""):
            pass
        assert (folder / "something").exists()

    assert not folder.exists()


def test_what_a_crash_left_is_deleted_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    (folder / "services" / "run").mkdir(parents=True)
    (folder / "services" / "run" / "lease").write_text("old")

    with DemoFolder(folder, cluster=""):
        assert list(folder.iterdir()) == []


def test_after_an_error_the_guard_clears_up(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with pytest.raises(RuntimeError), DemoFolder(folder, cluster=""):
        (folder / "something").write_text("left")
        raise RuntimeError

    assert not folder.exists()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    folder = tmp_path / "demo"
    folder.mkdir()
    os.chown(folder, 12345, 12345)

    with pytest.raises(DemoError, match="belongs to another user"), DemoFolder(folder, cluster=""):
        pass
