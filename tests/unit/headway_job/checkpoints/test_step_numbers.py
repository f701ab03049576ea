"""Numbers that a script gives to `run.step`: NumPy's integers are saved as others are, and a wrong number stops no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
import numpy as np
import torch
from headway_job import checkpoint


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)


def test_a_numpy_step_number_is_saved_and_restored(tmp_path: Path) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    run.save()
    run.step(np.int64(4))
    run.close()
    assert run.saved_step == 5
    again = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    assert again.start == 5
    again.close()


@pytest.mark.parametrize("number", [7.0, -1, "3", float("nan")])
def test_what_is_no_step_number_is_warned_of_once_and_counted(
    tmp_path: Path, number: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    run.step(number)
    run.save()
    run.step(number)
    run.close()
    assert run.saved_step == 2
    assert caplog.text.count("is no number of a step") == 1
