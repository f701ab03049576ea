"""Where checkpoints are kept, and stores other than a file system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.nodeagent.checkpoint.conftest import JOBSIDE

sys.path.append(str(JOBSIDE))

from headway_job.local_store import Receipt
from headway_job.mishaps import Damaged, Refused
from headway_job.place import key, open_store
from headway_job.remote_store import RemoteStore
from headway_job.shelf import Manifest, Shelf, folder_name, rank_file

JOB = {"SLURM_CLUSTER_NAME": "blue", "SLURM_JOB_NAME": "my net", "SLURM_JOB_ID": "17"}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*JOB, "HEADWAY_CHECKPOINT_DIR", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


def test_no_two_jobs_share_a_place_and_a_requeued_one_finds_it_again() -> None:
    array = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_JOB_ID": "18"}
    keys = [
        key(JOB, "train"),
        key({**JOB, "SLURM_JOB_ID": "18"}, "train"),
        key({**JOB, "SLURM_CLUSTER_NAME": "red"}, "train"),
        key({**JOB, **array, "SLURM_ARRAY_TASK_ID": "1"}, "train"),
        key({**JOB, **array, "SLURM_ARRAY_TASK_ID": "2"}, "train"),
        key(JOB, "evaluate"),
    ]

    assert len(set(keys)) == len(keys)
    assert keys[0] == "blue-my_net-17-train" == key({**JOB, "SLURM_RESTART_COUNT": "3"}, "train")
    assert keys[3] == "blue-my_net-17_1-train"


def test_a_name_cannot_leave_the_folder() -> None:
    assert "/" not in key({**JOB, "SLURM_JOB_NAME": "../../etc"}, "..")
    assert not key({}, "../x").startswith(".")
    assert key({}, "") == "run"


def test_the_default_place_is_below_the_variables_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path / "base"))
    for name, of in JOB.items():
        monkeypatch.setenv(name, of)

    assert open_store(None, "train", alone=True).where == str(tmp_path / "base" / "blue-my_net-17-train")


def test_ranks_that_have_not_met_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(Refused, match="init_process_group"):
        open_store(None, "train", alone=True)
    assert open_store(str(tmp_path / "mine"), None, alone=True).where == str(tmp_path / "mine")

    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(Refused, match="init_process_group"):
        open_store(str(tmp_path / "mine"), None, alone=True)


def manifest(step: int, receipt: Receipt) -> Manifest:
    return Manifest(step, 1, 7, "2.13", 0.0, 0.1, 0.2, {rank_file(0): receipt})


def test_other_urls_go_through_fsspec() -> None:
    pytest.importorskip("fsspec")
    shelf = Shelf(RemoteStore("memory://bucket/run"), keep=2)
    assert shelf.newest_first() == []
    for number in range(1, 5):
        folder = folder_name(number * 10, number)
        shelf.store.make(folder)
        receipt = shelf.store.write(folder, rank_file(0), lambda file: file.write(b"state") and None)
        if number != 2:
            shelf.write_manifest(folder, manifest(number * 10, receipt))
        shelf.tidy(before=number)

    newest = shelf.newest_first()
    shelf.set_aside(newest[0])

    assert newest == [folder_name(40, 4), folder_name(30, 3)]
    assert shelf.newest_first() == [folder_name(30, 3)]
    assert shelf.next_number() == 5
    assert shelf.manifest(newest[1]).files[rank_file(0)] == Receipt(5, receipt.digest)
    with shelf.store.read(newest[1], rank_file(0)) as file:
        assert file.read() == b"state"
    with pytest.raises(Damaged):
        shelf.store.read(newest[1], rank_file(1))
