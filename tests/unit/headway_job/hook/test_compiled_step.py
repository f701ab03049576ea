"""The hook in steps that torch compiles: it breaks no graph that must be whole, and is otherwise no more in the way than before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from headway_job.hook.compiled_step import traceable  # noqa: E402
from headway_job.hook.step_counter import StepCounter, step_hook  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402


class Own(torch.optim.Optimizer):
    """An optimizer whose step is one graph, as those of torch are not."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


def optimizer(kind: Callable[..., torch.optim.Optimizer], size: int = 2) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(size))
    parameter.grad = torch.ones(size)
    return kind([parameter])


@contextmanager
def hooked(hook: Any) -> Iterator[None]:
    torch._dynamo.reset()
    handle = register_optimizer_step_post_hook(hook)
    try:
        yield
    finally:
        handle.remove()
        torch._dynamo.reset()


def test_a_step_that_must_be_one_graph_is_compiled_without_us() -> None:
    counter, own = StepCounter(), optimizer(Own)
    with hooked(traceable(step_hook(counter))):
        own.step()
        step = torch.compile(lambda: own.step(), backend="eager", fullgraph=True)
        step()
        step()
        assert counter.last_step[0] == 1
        own.step()
    assert counter.last_step[0] == 2
    assert own.param_groups[0]["params"][0].tolist() == pytest.approx([0.6, 0.6])


def test_a_part_of_a_step_that_must_not_break_is_compiled_without_us() -> None:
    counter, own = StepCounter(), optimizer(Own)

    def within() -> None:
        with torch._dynamo.error_on_graph_break(True):
            own.step()

    with hooked(traceable(step_hook(counter))):
        step = torch.compile(lambda: within(), backend="eager")
        step()
        step()
    assert counter.last_step[0] == 0
    assert own.param_groups[0]["params"][0].tolist() == pytest.approx([0.8, 0.8])


def compiled_twice(*steps: Callable[[], Any]) -> tuple[dict[str, int], int, int]:
    """Call each step twice, compiled; return what torch has captured, the frames that it has compiled, and the breaks of graphs."""
    kept = torch._dynamo.utils.counters
    kept.clear()
    for each in steps:
        step = torch.compile(each, backend="eager")
        step()
        step()
    return dict(kept["stats"]), kept["frames"]["total"], sum(kept["graph_break"].values())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its JIT
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_compiled_steps_of_torchs_optimizers_are_counted_and_compiled_as_without_us(kind: Any) -> None:
    """Nothing that our hook calls is compiled, whatever it is called for."""
    counter, one = StepCounter(), optimizer(kind)
    torch._dynamo.reset()
    compiled_twice(one.step, lambda: one.step())  # some functions of torch are compiled the first time only
    torch._dynamo.reset()
    captured, frames, breaks = compiled_twice(one.step, lambda: one.step())

    with hooked(traceable(step_hook(counter))):
        found = compiled_twice(one.step, lambda: one.step())

    assert (found[0], found[2]) == (captured, breaks)
    assert found[1] <= frames
    assert counter.last_step[0] == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_steps_of_other_optimizers_are_counted_too() -> None:
    counter, own = StepCounter(), optimizer(Own)
    with hooked(traceable(step_hook(counter))):
        captured, _, breaks = compiled_twice(own.step, lambda: own.step())
    assert (captured, breaks) == ({}, 1)
    assert counter.last_step[0] == 4
    assert own.param_groups[0]["params"][0].tolist() == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize("version", ["2.4.1+cu121", "1.13.1", "unknown"])
def test_an_older_torch_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    hook = step_hook(StepCounter())
    monkeypatch.setattr(sys.modules["torch"], "__version__", version)
    assert traceable(hook) is hook


def test_a_torch_that_cannot_skip_the_hook_counts_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, own = StepCounter(), optimizer(Own)
    monkeypatch.delattr("torch._dynamo.eval_frame.skip_code")
    with hooked(traceable(step_hook(counter))):
        step = torch.compile(lambda: own.step(), backend="eager")
        step()
        step()
    assert counter.last_step[0] == 2
