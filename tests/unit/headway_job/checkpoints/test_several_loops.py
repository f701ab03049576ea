"""A second loop over `run.steps`: it continues an open run, and is refused after the end of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job import Refused, checkpoint


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)


def test_a_second_loop_after_the_end_of_the_run_is_refused_with_advice(tmp_path: Path) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1), every_steps=2)
    assert list(run.steps(4)) == [0, 1, 2, 3]
    with pytest.raises(
        Refused, match=r"run\.steps\(8\) was called after the end of the run.*after 4 steps.*Make one loop"
    ):
        next(run.steps(8))


def test_a_second_loop_without_steps_to_do_is_none(tmp_path: Path) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    assert list(run.steps(4)) == [0, 1, 2, 3]
    assert list(run.steps(4)) == []


def test_a_loop_after_an_exception_continues_at_the_step_that_was_left_and_saves(tmp_path: Path) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1), every_steps=2)
    made = []

    def train() -> None:
        for step in run.steps(8):
            made.append(step)
            if made == [0, 1, 2, 3, 4, 5]:
                raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        train()
    train()
    assert made == [0, 1, 2, 3, 4, 5, 5, 6, 7]
    assert run.saved_step == 8


def test_a_second_loop_does_not_restore_the_random_numbers_again(tmp_path: Path) -> None:
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1), every_steps=2)
    list(run.steps(2))
    again = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1), every_steps=100)
    drawn = []
    for step in again.steps(6):
        drawn.append(float(torch.rand(1)))
        if step == 3:
            break
    drawn += [float(torch.rand(1)) for _ in again.steps(6)]
    assert len(set(drawn)) == len(drawn) == 5
