"""A process may have many runs, such as the trials of a sweep: none of them keeps its model after its end."""

from __future__ import annotations

import gc
import logging
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from headway_job import checkpoint
from headway_job.checkpoints.ranks.trigger import SaveTrigger, install_signal_handler
from headway_job.checkpoints.run import Run

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.test_resume import checkpoints


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, before)


def begun(folder: Path, **options: Any) -> tuple[Run, weakref.ref[torch.nn.Module]]:
    model = torch.nn.Linear(2, 2)
    return checkpoint(str(folder), model=model, **options), weakref.ref(model)


@pytest.mark.parametrize("end", ["closed", "dropped", "failed"])
def test_a_run_that_has_ended_keeps_no_model(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    run, model = begun(folder, every_steps=1)
    if end == "closed":
        run.step()
        run.close()
    elif end == "failed":
        monkeypatch.setattr(run._agreement, "at", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            run.step()
    else:
        writer = run._writer
        run.step()
        writer.wait(None)
        del run, writer

    gc.collect()

    assert model() is None
    assert len(checkpoints(folder)) == (end != "failed")


def test_a_step_after_the_end_of_the_run_is_noted_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, _ = begun(folder, every_steps=1)
    run.close()
    with caplog.at_level(logging.WARNING, "headway_job"):
        for _ in range(3):
            run.step()

    assert [record.getMessage()[:37] for record in caplog.records] == ["Step 1 was made after run.close(), wh"]
    assert not checkpoints(folder)


def test_one_signal_reaches_all_runs_and_the_programs_handler_once(folder: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    run, _ = begun(folder)
    for _ in range(3000):  # more than Python's limit of recursion
        install_signal_handler(SaveTrigger())
    newest, _ = begun(folder.with_name("newest"))

    signal.raise_signal(signal.SIGUSR1)

    assert (run.trigger.pending, newest.trigger.pending) == (True, True)
    assert heard == [signal.SIGUSR1]
    handler: Any = signal.getsignal(signal.SIGUSR1)
    assert len(handler._triggers) == 2


@pytest.mark.parametrize("world", [1, 2])
def test_the_runs_of_a_process_leave_nothing_behind(fork_server: ForkServer, folder: Path, world: int) -> None:
    ended = fork_server.run("many_runs.sweep", world, folder=folder, runs=4)

    assert ended.ends == [0] * world, ended.logs
    for rank in range(world):
        assert ended.reported("alive", rank) == 0
        assert ended.reported("saved", rank) == [2] * 4
        assert ended.reported("kept", rank) == 0
