"""Memory of a resume: none of the state stays in memory, and none of it is read if it would not fit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from headway_job import Refused, checkpoint
from headway_job.checkpoints import resume_memory
from headway_job.checkpoints.catalog import Manifest
from headway_job.checkpoints.errors import Damaged
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.state import dtensor, memory, tensor_file
from headway_job.checkpoints.state.shards import ShardReader
from headway_job.checkpoints.stores.base import Receipt

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.test_faults import everything

WIDTH = 64


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Let only the counting of references free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[torch.Tensor]]:
    """Return references to all tensors that are read."""
    found: list[weakref.ref[torch.Tensor]] = []
    known = tensor_file.TensorFile._read

    def noted(self: Any, name: str, expected: Any) -> torch.Tensor:
        tensor = known(self, name, expected)
        found.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(tensor_file.TensorFile, "_read", noted)
    return found


class Loader:
    """An object with a state of its own."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def state_dict(self) -> Any:
        return {"rows": self.rows}

    def load_state_dict(self, state: Any) -> None:
        self.rows = state["rows"].clone()


def begun(folder: Path) -> Run:
    run: Run = checkpoint(str(folder), model=torch.nn.Linear(WIDTH, WIDTH), loader=Loader(torch.zeros(WIDTH)))
    return run


def save(folder: Path) -> None:
    run = begun(folder)
    run.save()
    run.step(0)
    run.close()


@pytest.mark.usefixtures("no_collector")
def test_after_a_resume_no_part_of_the_state_stays_in_memory(
    folder: Path, read: list[weakref.ref[torch.Tensor]]
) -> None:
    save(folder)

    run = begun(folder)

    assert run.start == 1
    assert run.restored
    assert len(read) >= 4  # weight, bias, the loader's rows, and the state of torch's generator
    kept = [of() for of in read]
    assert sum(one.numel() for one in kept if one is not None and one.dtype == torch.float32) == 0
    del kept
    assert list(run.steps(3)) == [1, 2]


def test_a_checkpoint_that_does_not_fit_into_memory_is_not_read(
    folder: Path, read: list[weakref.ref[torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder)
    before = everything(folder)
    size = next(len(data) for name, data in before.items() if name.endswith("rank-0.safetensors"))

    monkeypatch.setattr(memory, "most_bytes", lambda *_: size - 1)
    with pytest.raises(Refused, match=r"is intact, but does not fit into the memory \(rank 0 needs 0 MiB.*--mem"):
        begun(folder)
    assert read == []
    assert everything(folder) == before

    for left_bytes in (size, None):
        monkeypatch.setattr(memory, "most_bytes", lambda *_, left=left_bytes: left)
        assert begun(folder).start == 1


def test_if_one_rank_has_too_little_memory_all_are_refused(fork_server: ForkServer, folder: Path) -> None:
    fork_server.run("train", 2, folder=folder, steps=2, options={"every_steps": 2})
    before = everything(folder)

    found = fork_server.run("memory.cramped_resume", 2, folder=folder, cramped=1)
    after = fork_server.run("memory.cramped_resume", 2, folder=folder, cramped=None)

    assert found.ends == [1, 1]
    assert "does not fit into the memory (rank 1 needs" in found.logs[1]
    assert "does not fit into the memory of another rank, whose log says how much is missing" in found.logs[0]
    for rank in (0, 1):
        assert found.reported("read", rank) == 0
        assert after.reported("start", rank) == 2
    assert everything(folder) == before


def test_a_rank_needs_no_memory_for_what_only_rank_0_has(fork_server: ForkServer, folder: Path) -> None:
    fork_server.run("memory.stages", 2, folder=folder, resumed=False)

    ended = fork_server.run("memory.stages", 2, folder=folder, resumed=True)

    assert ended.ends == [0, 0], ended.logs
    assert [ended.reported("start", rank) for rank in (0, 1)] == [1, 1]
    assert [ended.reported("weight", rank) for rank in (0, 1)] == [[0.0, 1 << 18], [1.0, (1 << 18) + 1]]


def test_a_node_is_refused_only_for_what_all_its_ranks_together_need(fork_server: ForkServer, folder: Path) -> None:
    """Rank 0 needs 3 MiB, two of them for averages that it alone has, and rank 1 needs 1 MiB: 4 MiB and a little in all."""
    saved = fork_server.run("memory.averages_on_rank_0", 2, folder=folder)
    before = everything(folder)

    refused = fork_server.run("memory.averages_on_rank_0", 2, folder=folder, most=4 << 20)
    unchanged = everything(folder)
    resumed = fork_server.run("memory.averages_on_rank_0", 2, folder=folder, most=5 << 20)

    assert [saved.reported("saved", rank) for rank in (0, 1)] == [1, 1]
    assert refused.ends == [1, 1]
    assert "(rank 0 needs 3 MiB for it, all 2 ranks of this node at least 4 MiB, and 4 MiB are left" in refused.logs[0]
    assert unchanged == before
    assert resumed.ends == [0, 0], resumed.logs
    assert [resumed.reported("start", rank) for rank in (0, 1)] == [1, 1]


def test_ranks_of_a_node_count_with_the_least_that_one_of_them_reads() -> None:
    """Rank 0's file has 7 bytes, 2 of them shared; of other ranks' files, the smallest that is read has 3."""
    files = {f"rank-{rank}.safetensors": Receipt(size, b"") for rank, size in enumerate((7, 4, 3, 1))}
    manifest = Manifest(1, 4, 0, "", 0.0, 0.0, 0.0, files)

    assert [resume_memory._rank_bytes(manifest, rank, 2) for rank in range(5)] == [7, 6, 5, 3, 7]
    assert [resume_memory._least_bytes(manifest, world_size, 2) for world_size in (1, 2, 3, 8)] == [7, 6, 5, 3]


def test_whole_tensors_of_shards_that_do_not_fit_into_memory_are_refused() -> None:
    placeholder = {dtensor._PLACEHOLDER: "w", "shape": [10, 10], "dtype": "float32"}
    each = dtensor.StatefulObject("model", torch.nn.Linear(10, 10))
    with pytest.raises(MemoryError):
        dtensor.join_shards(each, {"weight": placeholder}, ShardReader([], fails), memory.MemoryBudget(399))
    with pytest.raises(Damaged, match="incomplete"):
        dtensor.join_shards(each, {"weight": placeholder}, ShardReader([], fails), memory.MemoryBudget(400))


def fails(name: str) -> Any:
    raise AssertionError(name)
