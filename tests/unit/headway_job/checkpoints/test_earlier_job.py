"""A run that continues another job reads its checkpoints, and changes nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from headway_job import Refused, checkpoint
from headway_job.checkpoints.run import Run

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.test_faults import everything, flip
from tests.unit.headway_job.checkpoints.test_resume import checkpoints


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "WORLD_SIZE",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "HEADWAY_CONTINUE_FROM",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "blue")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    monkeypatch.setenv("HEADWAY_CHECKPOINT_DIR", str(tmp_path / "base"))
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)
    return tmp_path / "base"


@pytest.fixture
def as_job(monkeypatch: pytest.MonkeyPatch) -> As:
    return As(monkeypatch)


class As:
    """Runs of jobs by id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(
        self, job: str, *, steps: int = 0, url: str | None = None, continue_from: str | None = None
    ) -> tuple[Run, float]:
        """Begin a run of a job, save after so many more steps, and return it with its model's weight at the start."""
        self._monkeypatch.setenv("SLURM_JOB_ID", job)
        model = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(model.weight)
        run = checkpoint(url, model=model, name="train", continue_from=continue_from)
        weight = model.weight.item()
        torch.nn.init.constant_(model.weight, weight + steps)
        for number in range(run.start, run.start + steps):
            if number == run.start + steps - 1:
                run.save()
            run.step(number)
        run.close()
        return run, weight


def test_a_new_job_of_the_same_name_begins_anew(as_job: As) -> None:
    as_job("1", steps=3)
    run, weight = as_job("2")
    assert (run.start, run.restored, weight) == (0, False, 0.0)


@pytest.mark.parametrize("how", ["variable", "option", "folder", "url"])
def test_a_job_continues_another_one_and_saves_in_its_own_folder(
    as_job: As, base: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_job("1", steps=3)
    before = everything(base / "blue-1-train")
    source = {
        "variable": "1",
        "option": "1",
        "folder": str(base / "blue-1-train"),
        "url": f"file://{base}/blue-1-train",
    }[how]
    if how == "variable":
        monkeypatch.setenv("HEADWAY_CONTINUE_FROM", source)
    run, weight = as_job("2", steps=2, continue_from=None if how == "variable" else source)

    assert (run.start, weight) == (3, 3.0)
    assert run.saved_step == 5
    assert everything(base / "blue-1-train") == before
    assert len(checkpoints(base / "blue-2-train")) == 1

    # Requeued, it continues where it was, not where the other job was
    run, weight = as_job("2", continue_from=source)
    assert (run.start, weight) == (5, 5.0)


def test_a_task_of_an_array_can_be_continued(as_job: As, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "4")
    as_job("11", steps=3)
    assert (base / "blue-7_4.11-train").exists()
    as_job("12", steps=5)  # submitted by the task, with its variables
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "20")
    assert as_job("20", continue_from="7_4")[0].start == 3
    assert as_job("21", continue_from="12")[0].start == 5
    assert as_job("22", continue_from="7_4.12")[0].start == 5
    (base / "blue-7_4.11-train").rename(base / "blue-7_4-train")  # as an earlier version named it
    assert as_job("23", continue_from="7_4")[0].start == 3


def test_a_folder_that_an_earlier_version_named_by_the_jobs_name_is_found(as_job: As, base: Path) -> None:
    as_job("1", steps=3)
    (base / "blue-1-train").rename(base / "blue-train-1-train")
    assert as_job("1")[0].start == 3, "a job that began before"
    assert as_job("2", continue_from="1")[0].start == 3


@pytest.mark.parametrize("source", ["99", "/nonexistent/folder"])
def test_if_there_is_nothing_to_continue_from_the_run_does_not_begin_anew(as_job: As, base: Path, source: str) -> None:
    with pytest.raises(
        Refused, match=r"no intact checkpoint to continue from: .*Correct HEADWAY_CONTINUE_FROM or continue_from"
    ):
        as_job("2", continue_from=source)
    assert sorted(path.name for path in base.iterdir()) == ["blue-2-train"], "nothing else was created"


def test_damaged_checkpoints_of_the_other_job_stay_as_they_are(as_job: As, base: Path) -> None:
    as_job("1", steps=3)
    as_job("1", steps=3)
    older, newest = checkpoints(base / "blue-1-train")
    flip(newest / "rank-0.safetensors")
    before = everything(base / "blue-1-train")
    assert as_job("2", continue_from="1")[0].start == 3
    flip(older / "rank-0.safetensors")
    with pytest.raises(Refused, match="no intact checkpoint to continue from"):
        as_job("3", continue_from="1")
    flip(older / "rank-0.safetensors")
    assert everything(base / "blue-1-train") == before


def test_all_ranks_continue_another_run_together(fork_server: ForkServer, tmp_path: Path, base: Path) -> None:
    first = fork_server.run("train", 2, folder=base, steps=8, options={"every_steps": 4})
    second = fork_server.run("train", 2, folder=tmp_path / "own", steps=12, options={"continue_from": str(base)})

    assert first.ends == second.ends == [0, 0], second.logs
    assert second.reported("start", 0) == second.reported("start", 1) == 8
