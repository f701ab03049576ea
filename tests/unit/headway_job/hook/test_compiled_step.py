"""The hook in steps that torch compiles: it breaks no graph that must be whole, and is otherwise no more in the way than before."""

from __future__ import annotations

import gc
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


@contextmanager
def collector_off() -> Iterator[None]:
    """Let no garbage be collected meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its JIT
def test_all_other_compiled_steps_are_counted_and_break_no_more_often() -> None:
    seen = {}
    for name in ("first", "plain", "traceable"):  # some functions of torch are compiled the first time only
        counter = StepCounter()
        hook = step_hook(counter)
        torch._dynamo.utils.counters.clear()
        # torch compiles functions that the hook calls, each at its first call, and some are called only for freed optimizers.
        with collector_off(), hooked(traceable(hook) if name == "traceable" else hook):
            for size in range(3):
                for kind in (Own, torch.optim.SGD):
                    one = optimizer(kind, size + 1)
                    for step in (
                        torch.compile(one.step, backend="eager"),
                        torch.compile(lambda one=one: one.step(), backend="eager"),
                    ):
                        step()
                        step()
        kept = torch._dynamo.utils.counters
        breaks = sum(kept["graph_break"].values())
        seen[name] = counter.last_step, dict(kept["stats"]), dict(kept["frames"]), breaks
    assert seen["traceable"][1:] == seen["plain"][1:]
    assert seen["traceable"][0][0] == seen["plain"][0][0] > 0


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
