"""Which optimizer counts, and what of it is remembered."""

from __future__ import annotations

import gc
import weakref

import torch

from nodeagent.jobside.headway_job.facts import model
from nodeagent.jobside.headway_job.tally import Tally, step_hook


def _optimizer(*sizes: int) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(size)) for size in sizes], lr=0.1)


def test_the_first_that_steps_counts() -> None:
    tally = Tally()
    hook = step_hook(tally)
    generator, critic = _optimizer(2), _optimizer(3)
    for _ in range(10):
        for _ in range(5):
            hook(critic, (), {})
        hook(generator, (), {})
    assert tally.mark[0] == 50
    assert tally.optimizers == 2


def test_one_optimizer_for_every_parameter() -> None:
    tally = Tally()
    hook = step_hook(tally)
    optimizers = [_optimizer(1) for _ in range(400)]
    for _ in range(3):
        for optimizer in optimizers:
            hook(optimizer, (), {})
    assert tally.mark[0] == 3
    assert len(tally.parameters) == 400


def test_a_second_phase_takes_over_and_the_total_goes_on() -> None:
    tally = Tally()
    hook = step_hook(tally)
    first, second = _optimizer(2), _optimizer(5)
    for _ in range(10):
        hook(first, (), {})
    for _ in range(1000):
        hook(second, (), {})
    assert tally.owner == id(second)
    assert tally.mark[0] == 10 + 1000
    assert [shape for shape, _, _, _ in tally.parameters] == [(5,)]


def test_two_that_take_turns_never_change_places() -> None:
    tally = Tally()
    hook = step_hook(tally)
    first, second = _optimizer(2), _optimizer(5)
    for _ in range(1000):
        hook(first, (), {})
        hook(second, (), {})
        hook(second, (), {})
    assert tally.owner == id(first)
    assert tally.mark[0] == 1000


def test_nothing_is_kept_alive() -> None:
    tally = Tally()
    hook = step_hook(tally)
    optimizer = _optimizer(7)
    parameter = optimizer.param_groups[0]["params"][0]
    gone = [weakref.ref(optimizer), weakref.ref(parameter)]
    hook(optimizer, (), {})
    hook(optimizer, (), {})
    del optimizer, parameter
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_shared_parameters_are_one() -> None:
    tally = Tally()
    hook = step_hook(tally)
    parameter = torch.nn.Parameter(torch.zeros(4, 2, dtype=torch.bfloat16))
    for _ in range(2):
        hook(torch.optim.SGD([parameter], lr=0.1), (), {})
    assert tally.parameters == [((4, 2), "torch.bfloat16", 8, 2)]


def test_what_is_no_optimizer_of_torch() -> None:
    tally = Tally()
    hook = step_hook(tally)
    odd = object()
    for _ in range(3):
        hook(odd, (), {})
    assert tally.mark[0] == 3
    assert tally.parameters == []


def test_the_same_model_gives_the_same_signature_in_any_order() -> None:
    one = [((2, 3), "torch.float32", 6, 4), ((5,), "torch.float32", 5, 4)]
    assert model(one, 1, [])["signature"] == model(list(reversed(one)), 2, [])["signature"]
    assert model(one, 1, [])["signature"] != model([((2, 3), "torch.float16", 6, 2), one[1]], 1, [])["signature"]
    assert model([((2,), "t", 2, 4)], 1, [])["signature"] != model([((2,), "t", 2, 4)] * 2, 1, [])["signature"]
    assert model(one, 1, [])["param_bytes"] == 44
    assert model(one, 1, [])["num_params"] == 11
