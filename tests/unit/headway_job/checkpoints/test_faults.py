"""Faults during a save or in the saved files: a run continues from the newest intact checkpoint."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headway_job.checkpoints.state import tensor_file

from tests.unit.headway_job.checkpoints.conftest import Ended, ForkServer
from tests.unit.headway_job.checkpoints.test_resume import KILLED, checkpoints


@pytest.fixture
def saved(fork_server: ForkServer, folder: Path) -> Path:
    """Return a folder with two checkpoints of two ranks, at steps 4 and 8."""
    ended = fork_server.run("train", 2, folder=folder, steps=8, pause_s=0.02, options={"every_steps": 4})
    assert ended.ends == [0, 0], ended.logs
    return folder


@pytest.mark.parametrize("third", [0, 1, 2])
def test_killed_before_any_call_of_a_save_the_newest_complete_one_is_there(
    fork_server: ForkServer, tmp_path: Path, third: int
) -> None:
    calls = fork_server.run("cut_off", folder=tmp_path / "whole", nth=0).reported("calls")
    assert calls > 15  # two saves: folders, files, syncs, renames

    starts = []
    for nth in range(1 + third, calls + 1, 3):
        folder = tmp_path / f"cut-{nth}"
        cut = fork_server.run("cut_off", folder=folder, nth=nth)
        found = fork_server.run("train", folder=folder, steps=8, options={"every_steps": 8})

        assert cut.ends == [KILLED]
        assert found.ends == [0], found.logs
        assert "not restored" not in found.logs[0]
        starts.append(found.reported("start"))
        left = [path.name for path in folder.iterdir()]
        assert len(left) <= 3  # the next save removes the incomplete attempt
        assert all((folder / name / "manifest.json").exists() for name in left)

    assert starts == sorted(starts)
    assert set(starts) == {3, 5, 6}


@pytest.mark.parametrize("nth", [1, 4, 6])
def test_a_rank_killed_while_all_save_leaves_the_checkpoint_before(
    fork_server: ForkServer, folder: Path, nth: int
) -> None:
    cut = fork_server.run("cut_off", 2, folder=folder, nth=nth)

    found = fork_server.run("restored", 2, folder=folder)

    assert cut.ends[1] == KILLED
    assert cut.ends[0] == 1  # its next collective fails, or that of the save before
    assert "The checkpoint of step 5 is not complete" in cut.logs[0]
    assert found.reported("start", 0) == found.reported("start", 1) == 3


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def relink(path: Path) -> None:
    moved = path.rename(path.parent.parent.parent / "elsewhere")
    path.symlink_to(moved)


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("rank-0.safetensors", flip, "another SHA-256"),
        ("rank-1.safetensors", flip, "another SHA-256"),
        ("rank-1.safetensors", halve, "bytes, not the"),
        ("rank-1.safetensors", Path.unlink, "rank-1.safetensors is missing"),
        ("rank-0.safetensors", relink, "rank-0.safetensors is a link"),
        ("manifest.json", halve, "manifest.json cannot be read"),
        ("manifest.json", relink, "manifest.json is a link"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_after_a_damaged_checkpoint_the_one_before_is_used(
    fork_server: ForkServer, saved: Path, name: str, harm: Callable[[Path], None], message: str
) -> None:
    newest = checkpoints(saved)[-1]
    harm(newest / name)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [0, 0], found.logs
    assert found.reported("start", 0) == found.reported("start", 1) == 4
    assert message in found.logs[0] + found.logs[1]
    assert (saved / f"damaged-{newest.name}").exists()


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def other(path: Path) -> None:
    """Replace a file by one of a version to come, with a matching digest in the manifest."""
    data = io.BytesIO()
    tensor_file.write({"headway_state": "2", "state": "[]"}, [], data)
    seal(path, data.getvalue())


def seal(path: Path, data: bytes) -> None:
    """Replace the content of a file, and change its digest in the manifest accordingly."""
    path.write_bytes(data)
    manifest = path.parent / "manifest.json"
    row = json.loads(manifest.read_text())
    row["files"][path.name] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.write_text(json.dumps(row))


@pytest.mark.parametrize("data", [b"no zip file", b""], ids=["text", "empty"])
def test_files_of_another_format_are_refused(fork_server: ForkServer, saved: Path, data: bytes) -> None:
    seal(checkpoints(saved)[-1] / "rank-1.safetensors", data)
    before = everything(saved)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [1, 1]
    assert "cannot be loaded (ValueError: it is not a file of tensors" in found.logs[1]
    assert "cannot be loaded on another rank, whose log says why" in found.logs[0]
    assert everything(saved) == before


def test_an_intact_checkpoint_that_torch_cannot_load_is_refused_and_stays(fork_server: ForkServer, saved: Path) -> None:
    other(checkpoints(saved)[-1] / "rank-0.safetensors")
    before = everything(saved)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [1, 1]
    for log in found.logs:
        assert "is intact (its SHA-256 is right), but cannot be loaded (ValueError: it has version '2'" in log
        assert "The run does not begin at step 0, and nothing was changed. The checkpoint was saved with torch" in log
    assert everything(saved) == before


@pytest.mark.parametrize("error", ["MemoryError", "RuntimeError", "EIO", "EMFILE", "ENOSPC"])
@pytest.mark.parametrize("when", ["checked", "loaded"])
def test_lack_of_memory_or_descriptors_is_no_damage(
    fork_server: ForkServer, saved: Path, error: str, when: str
) -> None:
    before = everything(saved)

    found = fork_server.run("lacking", 2, folder=saved, error=error, when=when)

    assert found.ends == [1, 1]
    assert (
        f"cannot be {'read' if when == 'checked' else 'loaded'} ({error if 'Error' in error else 'OSError'}"
        in found.logs[1]
    )
    assert "whose log says why" in found.logs[0]
    assert everything(saved) == before
    assert fork_server.run("restored", 2, folder=saved).reported("start", 1) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 5}, "manifest.json has format 5, and this version of headway_job reads 1, 2, 3, 4"),
        ({"format": 5, "files": None, "step": "many"}, "has format 5"),
        ({"format": None}, "has format None"),
        ({"codec": "zstd"}, "has the field 'codec', which this version of headway_job does not know"),
    ],
    ids=["newer", "newer in all", "none", "field"],
)
def test_a_manifest_of_another_version_is_refused_and_stays(
    fork_server: ForkServer, saved: Path, change: dict[str, object], message: str
) -> None:
    manifest = checkpoints(saved)[-1] / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    before = everything(saved)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [1, 1]
    for log in found.logs:
        assert message in log
        assert "It may be intact, so the run does not begin at step 0, and nothing was changed" in log
    assert everything(saved) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user, which only root can")
def test_a_file_of_another_user_is_refused_and_stays(fork_server: ForkServer, saved: Path) -> None:
    os.chown(checkpoints(saved)[-1] / "rank-0.safetensors", 65534, 65534)
    before = everything(saved)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [1, 1]
    assert "rank-0.safetensors belongs to another user" in found.logs[0]
    assert everything(saved) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, which only root can")
def test_a_checkpoint_of_another_user_is_refused_and_not_skipped(fork_server: ForkServer, saved: Path) -> None:
    newest = checkpoints(saved)[-1]
    os.chown(newest, 65534, 65534)
    before = everything(saved)

    found = fork_server.run("restored", 2, folder=saved)

    assert found.ends == [1, 1]
    assert f"{newest.name} belongs to another user" in found.logs[0]
    assert "The run does not begin at step 0" in found.logs[1]
    assert everything(saved) == before


def test_a_restarted_job_without_a_checkpoint_warns(fork_server: ForkServer, folder: Path) -> None:
    found = fork_server.run("restarted", folder=folder)

    assert found.ends == [0], found.logs
    assert (
        f"Slurm has started this job again, but there is no checkpoint in {folder}: the run begins at step 0."
        in found.logs[0]
    )


@pytest.mark.parametrize(("local", "checks"), [([0, 1], 0), ([0, 0], 1)], ids=["one node", "two nodes"])
def test_a_node_checks_the_file_of_all_ranks_once(
    fork_server: ForkServer, saved: Path, local: list[int], checks: int
) -> None:
    found = fork_server.run("counted", 2, folder=saved, local=local)

    assert found.reported("start", 1) == 8
    assert found.reported("opened", 0).count("rank-0.safetensors") == 2  # checked, then loaded
    assert found.reported("opened", 1).count("rank-0.safetensors") == 1 + checks
    assert found.reported("opened", 1).count("rank-1.safetensors") == 2


@pytest.mark.parametrize("there", ["nothing", "its own files"])
def test_a_node_without_the_shared_folder_is_refused_and_nothing_is_renamed(
    fork_server: ForkServer, tmp_path: Path, saved: Path, there: str
) -> None:
    own = tmp_path / "own"
    if there == "its own files":
        for path in checkpoints(saved):
            (own / path.name).mkdir(parents=True, mode=0o700)
            (own / path.name / "rank-1.safetensors").write_bytes((path / "rank-1.safetensors").read_bytes())
    before = checkpoints(saved)

    found = fork_server.run("restored", 2, folder=saved, others_folder=own)

    assert found.ends == [1, 1]
    for log in found.logs:
        assert "is visible to rank 0, but not to all ranks. All nodes must see the same folder" in log
    assert f"not to rank 1: its folder {own} has none of that name" in found.logs[1]
    assert checkpoints(saved) == before
    assert [path.name for path in saved.iterdir() if path.name.startswith("damaged-")] == []
    assert fork_server.run("restored", 2, folder=saved).reported("start", 1) == 8


def test_a_writing_thread_that_ends_itself_is_reported(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("exits", folder=folder)

    assert ended.ends == [0], ended.logs
    assert ended.reported("problem") == "the writing was ended by SystemExit"
    assert ended.reported("saved") is None


def test_files_that_rank_0_does_not_see_make_no_checkpoint(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("apart", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    assert "rank 0 does not see the file of rank 1: not a shared folder?" in ended.reported("problem", 0)
    assert "rank 0 does not see all ranks' files: not a shared folder?" in ended.reported("problem", 1)
    for rank in (0, 1):
        assert ended.reported("saved", rank) is None
        assert ended.reported("left", rank) == []


def test_a_link_in_place_of_a_checkpoint_is_not_followed(fork_server: ForkServer, saved: Path) -> None:
    newest = checkpoints(saved)[-1]
    newest.rename(saved.parent / "elsewhere")
    newest.symlink_to(saved.parent / "elsewhere")

    assert fork_server.run("restored", 2, folder=saved).reported("start") == 4
    assert (saved.parent / "elsewhere" / "manifest.json").exists()


def test_a_link_in_place_of_the_folder_is_refused(fork_server: ForkServer, folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")

    found = fork_server.run("restored", folder=folder)

    assert found.ends == [1]
    assert "is a link, or not a folder. Give headway_job.checkpoint the folder itself." in found.logs[0]
    assert not list((folder.parent / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, which only root can")
def test_a_folder_of_another_user_is_refused(fork_server: ForkServer, folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)

    found = fork_server.run("restored", folder=folder)

    assert found.ends == [1]
    assert "belongs to another user" in found.logs[0]


def test_if_no_checkpoint_is_intact_the_run_begins_at_step_0_and_its_saves_count(
    fork_server: ForkServer, saved: Path
) -> None:
    for path in checkpoints(saved):
        flip(path / "rank-0.safetensors")

    anew = fork_server.run("train", 2, folder=saved, steps=3, options={"every_steps": 3})
    again = fork_server.run("restored", 2, folder=saved)

    assert anew.reported("start") == 0
    assert "None of the 2 checkpoints" in anew.logs[0]
    assert again.reported("start") == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a disk of a known size has to be mounted, which only root can")
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=60)


def test_a_full_disk_fails_only_that_checkpoint(fork_server: ForkServer, small_disk: Path) -> None:
    ended = fork_server.run("full_disk", folder=small_disk / "run")

    assert ended.ends == [0], ended.logs
    assert ended.reported("on_full_disk") == 2
    assert ended.reported("folders") == ["filler", "step-000000002-0001"]
    assert "No space left on device" in ended.logs[0]
    assert ended.reported("afterwards") == 6


def test_a_rank_that_cannot_write_fails_the_checkpoint_on_all_ranks(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("one_cannot_write", 2, folder=folder)

    assert ended.ends == [0, 0], ended.logs
    for rank in (0, 1):
        assert [row["saved"] for row in ended.rows[rank] if "saved" in row] == [2, 2, 6]
    assert "rank 1 could not write" in ended.logs[0]
    assert [json.loads((path / "manifest.json").read_text())["step"] for path in checkpoints(folder)] == [2, 6]


def refused(ended: Ended) -> str:
    assert ended.ends == [1]
    return ended.logs[0]


def test_what_cannot_be_saved_is_refused_at_once(fork_server: ForkServer, folder: Path) -> None:
    assert "cannot be read back without executing code" in refused(
        fork_server.run("with_extra", folder=folder, extra="code")
    )
    assert "has no state_dict and load_state_dict" in refused(
        fork_server.run("with_extra", folder=folder, extra="none")
    )
    assert "need the package fsspec" in refused(fork_server.run("with_extra", folder="nowhere://at/all", extra="fine"))
    assert not folder.exists()


def test_a_model_that_the_checkpoint_does_not_fit_is_refused(fork_server: ForkServer, saved: Path) -> None:
    assert "The checkpoint does not fit model" in refused(fork_server.run("with_extra", folder=saved, extra="wider"))
    assert len(checkpoints(saved)) == 2
