"""Checkpoints of earlier versions, whose files are pickles: runs resume from them, and save in the new format."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from headway_job.checkpoints.state import module_versions, state_dict

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.state.test_sharded import SAVE, assert_same, trained
from tests.unit.headway_job.checkpoints.test_resume import KILLED, STEPS, checkpoints
from tests.unit.headway_job.checkpoints.test_resume import assert_same as assert_same_on_rank


def age(folder: Path) -> None:
    """Turn all checkpoints of a run into those of an earlier version: with files of torch.save, and a manifest of its format."""
    for path in checkpoints(folder):
        row = json.loads((path / "manifest.json").read_text())
        assert row["format"] in (3, 4)
        row["format"] -= 2
        for new in path.glob("rank-*.safetensors"):
            with new.open("rb") as file:
                state = state_dict.read(file)
            del state[module_versions.KEY]
            torch.save(state, new.with_suffix(".pt"))
            new.unlink()
            del row["files"][new.name]
            data = new.with_suffix(".pt").read_bytes()
            row["files"][new.with_suffix(".pt").name] = {
                "size_bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        (path / "manifest.json").write_text(json.dumps(row))


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_resumes_from_an_older_checkpoint_with_the_same_losses(
    fork_server: ForkServer, tmp_path: Path, folder: Path, world: int
) -> None:
    whole = fork_server.run("train", world, folder=tmp_path / "whole", steps=STEPS, pause_s=0.004)
    first = fork_server.run(
        "train", world, folder=folder, steps=STEPS, pause_s=0.01, asks={"7": 0}, wait_at=34, die_at=36
    )
    assert first.ends == [KILLED] * world
    age(folder)
    assert list(folder.rglob("*.pt"))
    assert not list(folder.rglob("*.safetensors"))

    second = fork_server.run("train", world, folder=folder, steps=STEPS, options={"every_steps": STEPS})

    assert second.ends == [0] * world, second.logs
    assert second.reported("start") == first.reported("saved") > 7
    for rank in range(world):
        assert_same_on_rank(whole, first, second, rank)
    newest = json.loads((checkpoints(folder)[-1] / "manifest.json").read_text())
    assert newest["format"] == 3
    assert list(checkpoints(folder)[-1].glob("*.safetensors"))


@pytest.mark.parametrize("after", [2, 3])
def test_a_sharded_run_resumes_from_an_older_checkpoint(
    fork_server: ForkServer, tmp_path: Path, folder: Path, after: int
) -> None:
    whole = trained(fork_server, "fsdp2", 2, tmp_path / "whole")
    first = trained(fork_server, "fsdp2", 2, folder, options=SAVE, die_at=8, saved=6)
    age(folder)

    second = trained(fork_server, "fsdp2", after, folder)

    assert second.ends == [0] * after, second.logs
    assert second.reported("start") == 6
    assert_same(whole, [first, second])
