"""Checkpoints on a file system of one node, which a job that is started again elsewhere does not find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job import checkpoint, started
from headway_job.checkpoints.stores import node_local
from headway_job.checkpoints.stores.location import open_earlier, open_store

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:30 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
29 27 0:31 / /scratch rw,relatime - lustre mgs@tcp:/scratch rw
30 29 0:32 / /scratch/local rw,relatime - xfs /dev/sdb rw
31 27 0:33 / /tmp rw,relatime - tmpfs tmpfs rw
32 27 0:34 / /tmp rw,relatime - beegfs beegfs rw
33 27 0:35 / /my\\040disk rw,relatime - fuse.sshfs host:/ rw
a line of another kind
"""


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM", "HEADWAY_CHECKPOINT_DIR",
        "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)


def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "mountinfo").write_text(text)
    monkeypatch.setattr(node_local, "_MOUNTS", str(tmp_path / "mountinfo"))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"), ("/var/spool/x", "ext4"), ("/home/ann/checkpoints", None), ("/homeless", "ext4"), ("/scratch/a", None),
        ("/scratch/local/a", "xfs"), ("/scratch/local", "xfs"), ("/scratch/locality", None), ("/tmp/x", None), ("/my disk/x", None),
    ],
)  # fmt: skip
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str | None
) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda given: given)  # paths of another machine
    mounted(tmp_path, monkeypatch, MOUNTS)
    assert node_local.file_system(path) == kind


def test_without_a_list_of_mounts_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_local, "_MOUNTS", str(tmp_path / "missing"))
    assert node_local.file_system("/") is None


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a tmpfs")
def test_a_tmpfs_of_this_machine_is_local() -> None:
    assert node_local.file_system("/dev/shm/a/b") == "tmpfs"


@pytest.mark.parametrize(("kind", "job", "warned"), [("xfs", "17", True), ("xfs", "", False), ("nfs4", "17", False)])
def test_a_job_whose_checkpoints_only_its_node_has_is_warned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    job: str,
    warned: bool,
) -> None:
    mounted(tmp_path, monkeypatch, f"27 1 254:0 / / rw - {kind} disk rw\n")
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)

    checkpoint(str(tmp_path / "run"), model=torch.nn.Linear(1, 1)).close()

    said = [row.getMessage() for row in caplog.records if "this node alone" in row.getMessage()]
    assert bool(said) == warned
    for text in said:
        assert f"folder {tmp_path / 'run'}, on a file system of this node alone (xfs)" in text
        assert "Name a folder that all nodes share" in text
        assert "export HEADWAY_CHECKPOINT_DIR=FOLDER" in text


@pytest.mark.parametrize("submitted_from", ["shared", "local"])
def test_a_job_that_works_on_its_nodes_disk_finds_its_checkpoints_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, submitted_from: str
) -> None:
    """Jobs that were started again have them there, and another default would make them begin at step 0."""
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    home.mkdir()
    kind = "nfs4" if submitted_from == "shared" else "xfs"
    mounted(tmp_path, monkeypatch, f"1 1 1:1 / / rw - ext4 disk rw\n2 1 1:2 / {home} rw - {kind} server rw\n")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(home))
    (scratch / "checkpoints" / "16-train").mkdir(parents=True)
    monkeypatch.chdir(scratch)
    monkeypatch.setattr(started, "_FOLDER", str(scratch))

    assert open_store(None, "train", single_rank=True).where == str(scratch / "checkpoints" / "17-train")
    earlier = open_earlier("16", "train")
    assert earlier is not None
    assert earlier.where == str(scratch / "checkpoints" / "16-train")

    checkpoint(model=torch.nn.Linear(1, 1)).close()
    assert sum("this node alone (ext4)" in row.getMessage() for row in caplog.records) == 1
    assert not any(home.iterdir())
