"""Batch sizes are those of the DataLoaders."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from headway_job.hook.batch_size import batch_size, hook_loaders
from headway_job.hook.optimizer_turns import optimizer_key
from headway_job.hook.step_counter import StepCounter, step_hook
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from torch.utils.data import dataloader as torchs

DATA = torch.zeros(24, 3)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> StepCounter:
    monkeypatch.setattr(
        torchs._BaseDataLoaderIter, "__init__", torchs._BaseDataLoaderIter.__init__
    )  # restored afterwards
    counter = StepCounter()
    hook_loaders(counter)
    return counter


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)


def test_the_loader_before_the_first_step_counts(counter: StepCounter) -> None:
    # A program that prepares its evaluation first, as some do, and evaluates between its epochs
    hook, optimizer = step_hook(counter), _optimizer()
    train, evaluate = DataLoader(DATA, batch_size=8), DataLoader(DATA, batch_size=24)
    assert len(list(evaluate)) == 1
    for _ in range(2):
        for batch in train:
            assert batch.shape == (8, 3)
            hook(optimizer, (), {})
        list(evaluate)
    assert (counter.last_step[0], counter.batch_size) == (6, 8)


def test_a_second_phase_has_its_own(counter: StepCounter) -> None:
    hook, first, second = step_hook(counter), _optimizer(), _optimizer()
    for optimizer, loader in ((first, DataLoader(DATA, batch_size=8)), (second, DataLoader(DATA, batch_size=2))):
        for _ in range(100):
            for _ in loader:
                hook(optimizer, (), {})
    assert (counter.counted_key, counter.batch_size) == (optimizer_key(second), 2)


@pytest.mark.parametrize(
    ("loader", "size"),
    [
        (DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 6, drop_last=False)), 6),  # type: ignore[arg-type]
        (DataLoader(DATA, batch_size=None), 0),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2]]), 0),
        (SimpleNamespace(batch_size=True), 0),
        (SimpleNamespace(batch_size=-4), 0),
        (SimpleNamespace(batch_size="8"), 0),
    ],
    ids=range(6),
)
def test_sources_of_the_batch_size(loader: Any, size: int) -> None:
    assert batch_size(loader) == size


def test_a_loader_that_is_none_of_torch_s_is_iterated_as_before(counter: StepCounter) -> None:
    class Odd(torchs._SingleProcessDataLoaderIter):
        def __init__(self, loader: Any) -> None:
            super().__init__(loader)
            self.more = 1

    class Loader(DataLoader[Any]):
        @property
        def batch_size(self) -> int:
            raise RuntimeError("must not be read")

        @batch_size.setter
        def batch_size(self, value: int) -> None:
            self.__dict__["given"] = value

        def __iter__(self) -> Iterator[Any]:
            return Odd(self)  # type: ignore[return-value]

    loader = Loader(DATA, batch_sampler=[[0], [1]])
    assert len(list(iter(loader))) == 2
    assert counter.loader_batch_size == 0


def test_errors_of_a_loader_are_passed_on(counter: StepCounter) -> None:
    class Broken:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            raise KeyError("no such example")

    with pytest.raises(KeyError, match="no such example"):
        list(DataLoader(Broken()))  # type: ignore[arg-type]
    assert counter.loader_batch_size == 1


def test_a_torch_without_such_a_class_gives_no_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torchs, "_BaseDataLoaderIter")
    hook_loaders(StepCounter())
    monkeypatch.delitem(__import__("sys").modules, "torch.utils.data.dataloader")
    hook_loaders(StepCounter())
