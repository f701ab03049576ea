"""Memory of a resume: none of the state stays in memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from headway_job import checkpoint
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.state import tensor_file

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
    return checkpoint(str(folder), model=torch.nn.Linear(WIDTH, WIDTH), loader=Loader(torch.zeros(WIDTH)))


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
