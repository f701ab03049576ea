"""The counted optimizer, and the facts that are kept about it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from headway_job.hook import optimizer_turns, step_counter
from headway_job.hook.optimizer_turns import optimizer_key
from headway_job.hook.process_facts import model
from headway_job.hook.step_counter import StepCounter, step_hook


def _optimizer(*sizes: int) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(size)) for size in sizes], lr=0.1)


def test_the_first_that_steps_counts() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    generator, critic = _optimizer(2), _optimizer(3)
    for _ in range(10):
        for _ in range(5):
            hook(critic, (), {})
        hook(generator, (), {})
    assert counter.last_step[0] == 50
    assert counter.optimizers == 2


def test_one_optimizer_for_every_parameter() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    optimizers = [_optimizer(1) for _ in range(400)]
    for _ in range(3):
        for optimizer in optimizers:
            hook(optimizer, (), {})
    assert counter.last_step[0] == 3
    assert len(counter.parameters) == 400


def test_a_second_phase_takes_over_and_the_total_goes_on() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    first, second = _optimizer(2), _optimizer(5)
    for _ in range(10):
        hook(first, (), {})
    for _ in range(1000):
        hook(second, (), {})
    assert counter.counted_key == optimizer_key(second)
    assert counter.last_step[0] == 10 + 1000
    assert [shape for shape, _, _, _ in counter.parameters] == [(5,)]


def test_what_is_kept_of_very_many_optimizers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_counter, "_MAX_OPTIMIZERS", 8)
    monkeypatch.setattr(optimizer_turns, "_MAX_OPTIMIZERS", 8)
    counter = StepCounter()
    hook = step_hook(counter)
    optimizers = [_optimizer(2) for _ in range(101)]
    for optimizer in optimizers[:100]:
        for _ in range(10):
            hook(optimizer, (), {})
    assert (len(counter.turns._waiting), len(counter.turns._known)) == (8, 8)
    assert (counter.optimizers, len(counter.parameters)) == (8, 8)
    for _ in range(1000):
        hook(optimizers[100], (), {})
    assert counter.counted_key == optimizer_key(optimizers[100])
    assert counter.last_step[0] == 8 * 10 + 1000


def test_two_that_take_turns_never_change_places() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    first, second = _optimizer(2), _optimizer(5)
    for _ in range(1000):
        hook(first, (), {})
        hook(second, (), {})
        hook(second, (), {})
    assert counter.counted_key == optimizer_key(first)
    assert counter.last_step[0] == 1000


class ZeroOneAndTwo:
    """Steps like DeepSpeed's DeepSpeedZeroOptimizer (stages 1 and 2), after its source; see test_deepspeed.py for the real one.

    Its class is not an optimizer of torch. For each group, it removes all others from the optimizer that it wraps.
    """

    def __init__(self, wrapped: torch.optim.Optimizer) -> None:
        self.wrapped = wrapped

    def step(self) -> None:
        groups = self.wrapped.param_groups
        for group in groups:
            self.wrapped.param_groups = [group]
            self.wrapped.step()
            self.wrapped.param_groups = groups


class ZeroThree(ZeroOneAndTwo):
    """Steps like DeepSpeedZeroOptimizer_Stage3: each sub-group is put into its group, and removed again."""

    def __init__(self, wrapped: torch.optim.Optimizer) -> None:
        super().__init__(wrapped)
        self.parts = [(group, tensor) for group in wrapped.param_groups for tensor in group["params"]]
        for group in wrapped.param_groups:
            group["params"] = []

    def step(self) -> None:
        for group, tensor in self.parts:
            group["params"] = [tensor]
            self.wrapped.step()
            group["params"] = []


@pytest.mark.parametrize("kind", [ZeroOneAndTwo, ZeroThree])
def test_an_optimizer_that_steps_part_by_part_makes_one_step_of_them(kind: type[ZeroOneAndTwo]) -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    groups = [{"params": [torch.nn.Parameter(torch.zeros(size))]} for size in (2, 3, 4, 5)]
    wrapped = torch.optim.SGD(groups, lr=0.1)
    handle = wrapped.register_step_post_hook(hook)
    zero = kind(wrapped)

    for _ in range(1000):
        zero.step()

    assert counter.last_step[0] == 1000
    assert counter.optimizers == 1
    assert sorted(shape for shape, _, _, _ in counter.parameters) == [(2,), (3,), (4,), (5,)]
    handle.remove()


def test_an_optimizer_that_trains_other_parameters_later_counts_on() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    optimizer = _optimizer(2, 3)
    for _ in range(10):
        hook(optimizer, (), {})
    optimizer.param_groups[0]["params"].pop(0)  # it is frozen from here on
    for _ in range(1000):
        hook(optimizer, (), {})
    assert counter.last_step[0] == 1010


def test_a_wrapper_and_what_it_wraps_are_one_step() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    inner = _optimizer(2)
    outer = torch.optim.SGD(inner.param_groups[0]["params"], lr=0.1)
    for _ in range(10):
        hook(inner, (), {})
        hook(outer, (), {})
    assert counter.last_step[0] == 10


def test_nothing_is_kept_alive() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    optimizer = _optimizer(7)
    parameter = optimizer.param_groups[0]["params"][0]
    gone = [weakref.ref(optimizer), weakref.ref(parameter)]
    hook(optimizer, (), {})
    hook(optimizer, (), {})
    del optimizer, parameter
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_shared_parameters_are_one() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    parameter = torch.nn.Parameter(torch.zeros(4, 2, dtype=torch.bfloat16))
    for _ in range(2):
        hook(torch.optim.SGD([parameter], lr=0.1), (), {})
    assert counter.parameters == [((4, 2), "torch.bfloat16", 8, 2)]


def test_what_is_no_optimizer_of_torch() -> None:
    counter = StepCounter()
    hook = step_hook(counter)
    odd = object()
    for _ in range(3):
        hook(odd, (), {})
    assert counter.last_step[0] == 3
    assert counter.parameters == []


def test_the_same_model_gives_the_same_signature_in_any_order() -> None:
    one = [((2, 3), "torch.float32", 6, 4), ((5,), "torch.float32", 5, 4)]
    assert model(one, 1, [])["signature"] == model(list(reversed(one)), 2, [])["signature"]
    assert model(one, 1, [])["signature"] != model([((2, 3), "torch.float16", 6, 2), one[1]], 1, [])["signature"]
    assert model([((2,), "t", 2, 4)], 1, [])["signature"] != model([((2,), "t", 2, 4)] * 2, 1, [])["signature"]
    assert model(one, 1, [])["param_bytes"] == 44
    assert model(one, 1, [])["num_params"] == 11
