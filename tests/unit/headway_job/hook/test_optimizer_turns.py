"""Programs that exchange optimizers, their parameters, or both: each iteration is one step of the count."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from headway_job.hook.step_counter import StepCounter, step_hook

Hook = Callable[[torch.optim.Optimizer], None]


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)


def _counted(program: Callable[[Hook, StepCounter], None]) -> int:
    counter = StepCounter()
    program(step_hook(counter), counter)
    return counter.last_step[0]


@pytest.mark.parametrize("kept", [False, True], ids=["freed", "kept"])
@pytest.mark.parametrize("steps", [1, 3, 100, 300])
def test_a_new_optimizer_in_each_epoch(steps: int, kept: bool) -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        model = torch.nn.Linear(2, 2)
        optimizers: list[torch.optim.Optimizer] = []
        for _ in range(12):
            optimizer = _sgd(model)
            optimizers = [*optimizers, optimizer] if kept else []
            for _ in range(steps):
                hook(optimizer)
        assert counter.parameters == [((2, 2), "torch.float32", 4, 4), ((2,), "torch.float32", 2, 4)]

    waiting = 256 if kept and steps < 100 else 0
    assert max(12 * steps - waiting, 1) <= _counted(program) <= 12 * steps


def test_the_rate_is_even_once_optimizers_were_replaced() -> None:
    """The steps of the first replacements wait; those of later ones are counted as they are made."""
    counter = StepCounter()
    hook = step_hook(counter)
    models = [torch.nn.Linear(2, 2) for _ in range(20)]
    optimizers = [_sgd(model) for model in models]
    done = 0
    for number, optimizer in enumerate(optimizers):
        for _ in range(100):
            hook(optimizer)
            done += 1
            assert number < 4 or counter.last_step[0] == done


def test_replaced_optimizers_that_take_turns() -> None:
    """A GAN whose two optimizers are new in each epoch, and kept by what wraps them."""

    def program(hook: Hook, counter: StepCounter) -> None:
        kept = []
        for _ in range(20):
            critic, generator = _sgd(torch.nn.Linear(2, 2)), _sgd(torch.nn.Linear(2, 2))
            kept.extend([critic, generator])
            for _ in range(100):
                hook(critic)
                hook(generator)

    assert 2000 - 257 <= _counted(program) <= 2000


def test_turns_after_replacements_are_not_added_up() -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        kept = [_sgd(torch.nn.Linear(2, 2)) for _ in range(10)]
        for optimizer in kept:
            for _ in range(100):
                hook(optimizer)
        assert counter.last_step[0] == 1000
        critic, generator = _sgd(torch.nn.Linear(2, 2)), _sgd(torch.nn.Linear(2, 2))
        for _ in range(1000):
            hook(critic)
            hook(generator)

    assert _counted(program) in (2000, 2001)


def test_pretraining_then_one_optimizer_for_each_parameter() -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        first = _sgd(torch.nn.Linear(2, 2))
        for _ in range(10):
            hook(first)
        each = [_sgd(torch.nn.Linear(1, 1)) for _ in range(500)]
        for _ in range(300):
            for optimizer in each:
                hook(optimizer)
        assert counter.optimizers == 500

    assert _counted(program) == 310


def test_blocks_that_take_turns_are_those_of_one_optimizer() -> None:
    """Reinforcement learning: 80 steps of the actor, then 80 of the critic."""

    def program(hook: Hook, counter: StepCounter) -> None:
        actor, critic = _sgd(torch.nn.Linear(2, 2)), _sgd(torch.nn.Linear(2, 2))
        for _ in range(50):
            for optimizer in (actor, critic):
                for _ in range(80):
                    hook(optimizer)

    assert _counted(program) == 50 * 80


@pytest.mark.parametrize("every", [2, 100])
def test_a_parameter_that_is_exchanged(every: int) -> None:
    """Gaussian splatting: a longer parameter takes the place of the optimizer's first one. id() of a freed one comes back."""

    def program(hook: Hook, counter: StepCounter) -> None:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(10, 3))], lr=0.1)
        for number in range(4000):
            hook(optimizer)
            if number % every == 0:
                group = optimizer.param_groups[0]
                longer = torch.cat([group["params"][0].detach(), torch.zeros(1, 3)])
                group["params"][0] = torch.nn.Parameter(longer)

    assert 3990 <= _counted(program) <= 4000


def test_layers_that_are_frozen_and_thawed() -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        layers = [torch.nn.Linear(2, 2) for _ in range(4)]
        optimizer = _sgd(layers[0])
        other = _sgd(torch.nn.Linear(2, 2))
        for epoch in range(40):
            optimizer.param_groups[0]["params"] = list(layers[epoch % 4].parameters())
            for _ in range(50):
                hook(optimizer)
                hook(other)

    assert _counted(program) == 2000


def test_federated_clients_and_folds() -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        model = torch.nn.Linear(2, 2)
        for _ in range(40):
            client = copy.deepcopy(model)
            optimizer = _sgd(client)
            for _ in range(20):
                hook(optimizer)

    assert _counted(program) == 800


def test_inner_optimizers_of_meta_learning() -> None:
    def program(hook: Hook, counter: StepCounter) -> None:
        model = torch.nn.Linear(2, 2)
        outer = _sgd(model)
        for number in range(600):
            for _ in range(4):
                task = copy.deepcopy(model)
                inner = _sgd(task)
                for _ in range(5):
                    hook(inner)
            hook(outer)
            assert number or counter.last_step[0] <= 20

    assert 600 <= _counted(program) <= 640


def test_a_class_without_weak_references() -> None:
    class Odd:
        __slots__ = ()

    counter = StepCounter()
    hook = step_hook(counter)
    first, second = Odd(), Odd()
    for _ in range(10):
        hook(first)
        hook(second)
    assert counter.last_step[0] == 10
    for _ in range(1000):
        hook(second)
    assert counter.last_step[0] >= 1009


def test_each_step_that_is_counted_calls_back() -> None:
    """A profile window of a program with a new optimizer in each step sees the steps."""
    counter = StepCounter()
    hook = step_hook(counter)
    called: list[int] = []
    counter.set_step_callback(lambda: called.append(counter.last_step[0]))
    model = torch.nn.Linear(2, 2)
    for _ in range(5):
        hook(_sgd(model))
    assert called == [1, 2, 3, 4, 5]
