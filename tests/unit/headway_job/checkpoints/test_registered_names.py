"""A run whose objects have other names than those of its checkpoint is refused, and the checkpoint stays."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from headway_job import Refused, checkpoint
from headway_job.checkpoints.run import Run

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.test_faults import everything
from tests.unit.headway_job.checkpoints.test_resume import checkpoints


class Thing:
    """An object of the user."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)


def weighted(value: float) -> torch.nn.Linear:
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, value)
    return model


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


def trained(folder: Path, steps: int = 2, **objects: Any) -> Run:
    """Begin a run with these objects, and save after some more steps."""
    run: Run = checkpoint(str(folder), **objects)
    run.save()
    for number in range(run.start, run.start + steps):
        run.step(number)
    run.save()
    run.close()
    return run


SAVED: dict[str, Any] = {"model": 5.0, "loader": [1]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"net": 0.0, "loader": [0]}, "no state of net, which .*; and its state of model would be lost"),
        ({"model": 0.0}, "its state of loader would be lost"),
        ({"model": 0.0, "loader": [0], "ema": 0.0}, "it has no state of ema, which this run would train"),
        ({"model": 0.0, "loader": [0], "epoch": [0]}, "it has no state of epoch"),
        ({"model": [0.0], "loader": [0]}, "no state of model.0, .*; and its state of model would"),
        ({"model": 0.0, "loader": 0.0}, "no state of loader"),
    ],
    ids=["renamed", "left out", "a new model", "a new object", "a list", "another kind"],
)
def test_a_run_with_other_names_than_its_checkpoint_is_refused_and_the_checkpoint_stays(
    folder: Path, given: dict[str, Any], message: str
) -> None:
    trained(folder, **made(SAVED))
    before = everything(folder)

    for _ in range(3):
        with pytest.raises(Refused, match=message) as caught:
            trained(folder, **made(given))

    assert f"{checkpoints(folder)[-1].name} in {folder} was saved with other objects" in str(caught.value)
    assert "add optional=[" in str(caught.value)
    assert everything(folder) == before


def made(values: dict[str, Any]) -> dict[str, Any]:
    """Return models for numbers, lists of them, and objects for the loader."""
    return {
        name: weighted(of) if isinstance(of, float)
        else [weighted(one) for one in of] if name == "model" else Thing(of)
        for name, of in values.items()
    }  # fmt: skip


def test_objects_that_the_script_calls_optional_may_be_added_and_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(folder, model=weighted(5.0), loader=Thing([1]), optimizer=optimizer())
    model, average = weighted(0.0), weighted(7.0)

    with caplog.at_level(logging.WARNING, "headway_job"):
        run = trained(folder, model=model, ema=average, optional=["ema", "loader", "optimizer"])

    assert run.start == 2
    assert (model.weight.item(), average.weight.item()) == (5.0, 7.0)
    said = "\n".join(row.getMessage() for row in caplog.records)
    assert "has no state of ema, which stays as it is" in said
    assert "The state of loader in checkpoint" in said
    assert "The state of optimizer in checkpoint" in said

    average = weighted(0.0)
    assert trained(folder, model=model, ema=average).start == 4
    assert average.weight.item() == 7.0


@pytest.mark.parametrize("name", ["model", "model.1"])
def test_one_of_a_list_may_be_optional(folder: Path, name: str) -> None:
    trained(folder, model=[weighted(5.0)])
    with pytest.raises(Refused, match=r"no state of model\.1"):
        trained(folder, model=[weighted(0.0), weighted(1.0)])
    models = [weighted(0.0), weighted(1.0)]
    assert trained(folder, model=models, optional=name).start == 2
    assert [one.weight.item() for one in models] == [5.0, 1.0]


@pytest.mark.parametrize("optional", [None, 3, [3], torch.nn.Linear(1, 1)], ids=repr)
def test_optional_is_a_list_of_names(folder: Path, optional: Any) -> None:
    with pytest.raises(Refused, match="optional must be a list of names"):
        checkpoint(str(folder), model=weighted(0.0), optional=optional)


def test_an_object_whose_state_is_none_is_restored(folder: Path) -> None:
    trained(folder, model=weighted(5.0), thing=Thing(None))
    thing = Thing("initial")
    assert trained(folder, model=weighted(0.0), thing=thing).start == 2
    assert thing.state is None


class Stateless:
    """An object with both methods, as a framework wants them, and no state."""

    def state_dict(self) -> Any:
        pass

    def load_state_dict(self, state: Any) -> None:
        state["count"]


class StatelessOptimizer(torch.optim.SGD):
    """An optimizer without a state."""

    def state_dict(self) -> Any:
        return None


def test_objects_that_have_no_state_and_cannot_load_none_stay_as_they_are(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def objects(value: float) -> dict[str, Any]:
        own = StatelessOptimizer([torch.zeros(1, requires_grad=True)], lr=0.1)
        return {"model": weighted(value), "optimizer": own, "thing": Stateless()}

    trained(folder, **objects(5.0))
    found = objects(0.0)
    assert trained(folder, **found).start == 2
    assert found["model"].weight.item() == 5.0
    said = "\n".join(row.getMessage() for row in caplog.records)
    assert "has no state of thing, which stays as it is" in said
    assert "has no state of optimizer, which stays as it is" in said


def test_rank_0_may_be_the_only_one_with_an_object(fork_server: ForkServer, folder: Path) -> None:
    first = fork_server.run("names.average_on_rank_0", 2, folder=folder, names=["ema", "spare"])
    second = fork_server.run("names.average_on_rank_0", 2, folder=folder, names=["ema", "spare"])
    renamed = fork_server.run("names.average_on_rank_0", 2, folder=folder, names=["mean", "spare"])

    assert first.ends == second.ends == renamed.ends == [0, 0], second.logs
    assert first.reported("start") == 0
    assert [second.reported("start", rank) for rank in (0, 1)] == [2, 2]
    assert [second.reported("weights", rank) for rank in (0, 1)] == [[11.0, 12.0], [11.0]]
    assert "no state of mean, which this run would train from the beginning" in renamed.reported("refused", 0)
    assert "its state of ema would be lost" in renamed.reported("refused", 1)
