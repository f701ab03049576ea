"""A program that changes its working directory finds its checkpoints again when its job is started once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from headway_job.checkpoints.stores.location import open_earlier

from tests.unit.headway_job.checkpoints.conftest import JOBSIDE

PROGRAM = Path(__file__).with_name("changes_folder.py")


def started(cwd: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, as a job that Slurm may start again."""
    kept = {name: of for name, of in os.environ.items() if not name.startswith(("SLURM_", "HEADWAY_", "WORLD_SIZE"))}
    env = {**kept, "PYTHONPATH": str(JOBSIDE), "SLURM_JOB_ID": "77", "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(PROGRAM), *args]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=240, check=True)


@pytest.mark.parametrize(
    ("how", "base"), [pytest.param("direct", "kept", marks=pytest.mark.slow), ("spawn", "checkpoints")]
)
def test_the_default_folder_is_below_the_one_where_the_program_was_started(tmp_path: Path, how: str, base: str) -> None:
    more = {} if base == "checkpoints" else {"HEADWAY_CHECKPOINT_DIR": base}
    first = started(tmp_path, how, "outputs/1", "before", "", **more)
    second = started(tmp_path, how, "outputs/2", "before", "", SLURM_RESTART_COUNT="1", **more)
    assert first.stdout == f"start 0 where {tmp_path}/{base}/77-changes_folder\n"
    assert second.stdout == f"start 2 where {tmp_path}/{base}/77-changes_folder\n"


def test_a_folder_that_an_earlier_version_made_where_the_program_had_changed_to_is_found(tmp_path: Path) -> None:
    older = tmp_path / "work" / "checkpoints" / "77-changes_folder"
    started(tmp_path, "direct", "work", "before", str(older))
    again = started(tmp_path, "direct", "work", "before", "", SLURM_RESTART_COUNT="1")
    assert again.stdout == f"start 2 where {older}\n"


def test_a_relative_path_is_made_absolute_when_the_run_begins(tmp_path: Path) -> None:
    done = started(tmp_path, "direct", "outputs/1", "after", "mine")
    assert done.stdout == f"start 0 where {tmp_path}/mine\n"
    assert len(list((tmp_path / "mine").glob("step-*"))) == 1
    assert "is relative" not in done.stderr


def test_a_job_is_warned_of_a_relative_path_in_a_folder_to_which_the_program_has_changed(tmp_path: Path) -> None:
    done = started(tmp_path, "direct", "outputs/1", "before", "mine")
    assert done.stdout == f"start 0 where {tmp_path}/outputs/1/mine\n"
    assert f"Checkpoints are kept in the folder {tmp_path}/outputs/1/mine, as the path mine is relative" in done.stderr


@pytest.mark.parametrize("source", ["checkpoints/4711-train", "4711"])
def test_an_earlier_job_is_found_where_the_program_was_started(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEADWAY_CHECKPOINT_DIR", "SLURM_CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "checkpoints" / "4711-train").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("headway_job.started._FOLDER", str(tmp_path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = open_earlier(source, "train")
    assert found is not None
    assert found.where == str(tmp_path / "checkpoints" / "4711-train")
    assert open_earlier("checkpoints/4712-train", "train") is None
